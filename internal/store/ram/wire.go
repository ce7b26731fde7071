// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"afterimage/internal/embedding"
)

// The frame layout is in the package comment; these are its numbers.
const (
	wireVersion = 4
	wireMagic   = 0x31534641 // "AFS1"

	// Sizes of the fixed parts.
	headBytes    = 24 // magic, op, status, count, request, body bytes, reserved
	itemBytes    = 16 // status, reserved, key bytes, reserved, object bytes
	reserveBytes = 24 // object bytes, TTL, flags, tenant bytes, key bytes, reserved
	helloBytes   = 64 // version, flags, epoch, largest object, link, bytes of memory, sketch and index, place
	askBytes     = 48 // hello's request: version, process, flags, reserved, link, lane, bytes of memory and table
	offerBytes   = 32 // status, reserved, object bytes, offset, loan
	laneEndBytes = 16 // lane, request
	eventBytes   = 12 // sequence number, kind, reserved, key bytes

	// Limits that both sides check before they allocate. A batch of the longest keys fits one body, so
	// a client may cut any list of keys into batches without looking at their lengths.
	maxBatch       = 512
	maxKeyBytes    = 4096
	maxTenantBytes = 256
	maxBodyBytes   = 4 << 20 // holds maxBatch keys of maxKeyBytes
	maxTextBytes   = 512     // of a refusal

	flagSoftPin = 1 // of reserve and take

	flagLink   = 1 // of hello: this connection is a link
	flagMemory = 2 // of hello's reply: the Store maps the client's memory
)

// op says what a frame is for. A reply carries the op of its request, but for the second reply to
// opReserve, which is opCommit. Numbers are never used again for something else.
type op uint8

// Flow of a lane: hello, then any number of calls, each answered before the next is sent, but for those of several PUTs:
//
//	exists -> exists
//	get    -> get, items, objects
//	lend   -> lend, offers, objects that are not lent
//	remove -> remove
//	reserve -> reserve (ok), object -> commit
//	reserve -> reserve (exists or rejected)
//	take   -> take
//	list   -> list
//	totals -> totals
//	subscribe -> subscribe, event, event, ... until the end of the connection
//
// On a lane of a link returns may come before any request, unanswered.
//
// Flow of a link: hello with descriptors both ways, then return, lane end and recall, unanswered.
const (
	// u32 version, u32 pid, u32 flags, u32 0, u64 link, u64 lane, u64 bytes of memory, u64 bytes of table
	// -> u32 version, u32 flags, u64 epoch, u64 largest object, u64 link, u64 bytes of memory, u64 bytes of sketch,
	//    u64 bytes of index, u64 place
	opHello op = 1

	opExists    op = 2 // count x (u16 n, n bytes of key) -> count x i64 object bytes or -1
	opGet       op = 3 // count x (u64 most, u8 exact, u8 0, u16 n, key) -> count x (item, key, object)
	opRemove    op = 4 // count x (u16 n, key) -> nothing
	opReserve   op = 5 // u64 bytes, u64 TTL, u16 flags, u16 t, u16 n, u16 0, t bytes of tenant, key -> status
	opCommit    op = 6 // only from the server: the object that followed reserve is stored
	opSubscribe op = 7 // nothing -> nothing, then events
	opEvent     op = 8 // only from the server: u64 seq, u8 kind, u8 0, u16 n, key

	opLend op = 9  // as get -> count x (u8 status, 7 x u8 0, u64 bytes, u64 offset, u64 loan), objects
	opTake op = 10 // as reserve, with u64 offset in front -> status

	opReturn  op = 11 // link or lane, from the client: count x u64 loan
	opLaneEnd op = 12 // link, from the client: count x (u64 lane, u64 request or 0)
	opRecall  op = 13 // link, from the server: count x u64 loan

	opList   op = 14 // u16 p, u16 a, p bytes of prefix, key to go on behind -> count x entry
	opTotals op = 15 // nothing -> JSON
)

// status is the verdict of the server on a request, or on one item of a GET.
type status uint8

const (
	statusOK        status = 0
	statusMiss      status = 1 // GET items only
	statusRejected  status = 2 // no room, too large, not the size that was asked for; the connection goes on
	statusExists    status = 3 // PUT only: there already, which is a success
	statusMalformed status = 4 // the format was broken; the server closes the connection
	statusLent      status = 5 // items of lend: the object is at an offset of the Store's memory
)

// errProtocol: the other side sent what the format does not allow. The connection is of no more use.
var errProtocol = errors.New("ram: protocol error")

// checkKey refuses a key that no frame carries.
func checkKey(k embedding.Key) error {
	if len(k) == 0 || len(k) > maxKeyBytes {
		return fmt.Errorf("key of %d bytes, want 1 to %d", len(k), maxKeyBytes)
	}
	return nil
}

// head is the first part of every frame.
type head struct {
	op      op
	status  status
	count   int
	request uint64
	body    int
}

// append writes h to b.
func (h head) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, wireMagic)
	b = append(b, byte(h.op), byte(h.status))
	b = binary.LittleEndian.AppendUint16(b, uint16(h.count))
	b = binary.LittleEndian.AppendUint64(b, h.request)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.body))
	return binary.LittleEndian.AppendUint32(b, 0)
}

// parseHead reads a head and checks every length in it, so that nothing is allocated on the word of
// the other side.
func parseHead(b []byte) (head, error) {
	h := head{
		op:      op(b[4]),
		status:  status(b[5]),
		count:   int(binary.LittleEndian.Uint16(b[6:])),
		request: binary.LittleEndian.Uint64(b[8:]),
	}
	body := binary.LittleEndian.Uint32(b[16:])
	switch {
	case binary.LittleEndian.Uint32(b) != wireMagic:
		return h, fmt.Errorf("%w: magic %#x", errProtocol, binary.LittleEndian.Uint32(b))
	case h.count > maxBatch:
		return h, fmt.Errorf("%w: batch of %d items, limit %d", errProtocol, h.count, maxBatch)
	case body > maxBodyBytes:
		return h, fmt.Errorf("%w: body of %d bytes, limit %d", errProtocol, body, maxBodyBytes)
	}
	h.body = int(body)
	return h, nil
}

// frames reads frames from a connection. Its buffers are reused: a body is valid until the next read.
type frames struct {
	r    io.Reader
	head [headBytes]byte
	body []byte
}

// keepBytes is the most memory for bodies that an idle connection holds on to.
const keepBytes = 64 << 10

func (f *frames) next() (head, []byte, error) {
	if _, err := io.ReadFull(f.r, f.head[:]); err != nil {
		return head{}, nil, err
	}
	h, err := parseHead(f.head[:])
	if err != nil {
		return h, nil, err
	}
	if cap(f.body) > keepBytes && h.body <= keepBytes {
		f.body = nil
	}
	if cap(f.body) < h.body {
		f.body = make([]byte, h.body)
	}
	f.body = f.body[:h.body]
	if _, err := io.ReadFull(f.r, f.body); err != nil {
		return h, nil, fmt.Errorf("body of %d bytes: %w", h.body, err)
	}
	return h, f.body, nil
}

// readItem reads the head and key of one item of a GET reply, and checks that it is about want.
func readItem(r io.Reader, scratch []byte, want embedding.Key) (status, uint64, error) {
	if _, err := io.ReadFull(r, scratch[:itemBytes]); err != nil {
		return 0, 0, err
	}
	st, n := status(scratch[0]), binary.LittleEndian.Uint64(scratch[8:])
	keyLen := int(binary.LittleEndian.Uint16(scratch[2:]))
	if keyLen != len(want) {
		return 0, 0, fmt.Errorf("%w: answer about another key", errProtocol)
	}
	if _, err := io.ReadFull(r, scratch[:keyLen]); err != nil {
		return 0, 0, err
	}
	if !bytes.Equal(scratch[:keyLen], []byte(want)) {
		return 0, 0, fmt.Errorf("%w: answer about another key", errProtocol)
	}
	return st, n, nil
}

// appendItem writes the head and key of one item of a GET reply.
func appendItem(b []byte, st status, key embedding.Key, n int) []byte {
	b = append(b, byte(st), 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(key)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	return append(b, key...)
}

// appendKeys writes the body of exists and remove.
func appendKeys(b []byte, keys []embedding.Key) []byte {
	for _, k := range keys {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(k)))
		b = append(b, k...)
	}
	return b
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}
