// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"
)

// WireVersion is the version of the frames. Peers of unlike versions refuse each other at hello.
//
//	1: hello, data, ack, cancel, ping, pong
//	2: reserve, grant, complete in the place of ack, abandon, refresh, credit, recall; loans
const WireVersion = 2

// A frame is a header of 64 bytes, little endian, and a body of the length it names. docs/wire.md
// describes the same for readers.
const (
	offMagic      = 0  // u32 "AFW1"
	offVersion    = 4  // u16 WireVersion
	offType       = 6  // u8 frame type
	offStatus     = 7  // u8 status; 0 in all but grant, complete and the receiver's hello
	offTransfer   = 8  // [16]byte transfer id; 0 in hello, ping and pong
	offAttempt    = 24 // u32 attempt of the transfer
	offReserved   = 28 // u32 0
	offGeneration = 32 // u64 generation of the receiver; 0 in the sender's hello
	offLength     = 40 // u64 length of the body that follows the header
	offCheck      = 48 // u64 XXH3-64 of a data frame's body; 0 where the object carries its own
	offSum        = 56 // u64 XXH3-64 of bytes 0..55
	headerBytes   = 64

	frameMagic = 'A' | 'F'<<8 | 'W'<<16 | '1'<<24
)

// The body of a sender's complete: where the object lies in the memory that its hello showed.
const (
	lendOffset = 0 // u64 first byte
	lendLength = 8 // u64 bytes
	lendBytes  = 16
)

// frameType says what a frame is for. Values are never reused; 3 was ack.
type frameType uint8

// Protocol flow. The sender dials. Both sides send one hello; a receiver that refuses puts a status
// and a reason into its own and closes. From then on the sender may name any transfer that it was
// granted:
//
//	reserve ──► grant              an object is being made; from here on its sender must prove life
//	data    ──► complete           the object, copied through the connection
//	complete ─► complete, credit   the object, lent: credit follows when the receiver let go of it
//	refresh ──► grant              the connection broke: where does the transfer stand?
//	abandon                        the object will not come
//	ping    ──► pong
//
// The receiver says cancel for a transfer that it no longer wants, and the sender recall for loans
// that it needs back.
const (
	frameHello    frameType = 1  // both ways: JSON; the receiver's carries its generation
	frameData     frameType = 2  // sender: body is one whole object
	frameAbandon  frameType = 4  // sender: the transfer will not be written; body is a reason as text
	framePing     frameType = 5  // sender: no body
	framePong     frameType = 6  // receiver: no body
	frameReserve  frameType = 7  // sender: the transfer will be written; no body
	frameGrant    frameType = 8  // receiver: answers reserve and refresh; body is a reason as text
	frameComplete frameType = 9  // sender: where a lent object lies; receiver: status of a transfer, body is a reason as text
	frameCancel   frameType = 10 // receiver: the transfer is no longer wanted; body is a reason as text
	frameRefresh  frameType = 11 // sender: start over; no body
	frameCredit   frameType = 12 // receiver: a loan is back; no body
	frameRecall   frameType = 13 // sender: a loan is wanted back; no body
)

// maxTextBytes bounds the bodies that are text, which are read into fresh memory.
const maxTextBytes = 4096

// transferID names a transfer. It is random and never used twice.
type transferID [16]byte

func (id transferID) String() string { return hex.EncodeToString(id[:]) }

func parseTransfer(s string) (id transferID, err error) {
	if hex.DecodedLen(len(s)) != len(id) {
		return id, fmt.Errorf("transfer id %q: want 32 hex digits", s)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return id, fmt.Errorf("transfer id %q: %w", s, err)
	}
	return id, nil
}

// header is the decoded head of a frame.
type header struct {
	Version    uint16
	Type       frameType
	Status     status
	Transfer   transferID
	Attempt    uint32
	Generation uint64
	Length     uint64
	Check      uint64
}

// append appends the encoded header to b. A zero Version becomes WireVersion.
func (h header) append(b []byte) []byte {
	var f [headerBytes]byte
	if h.Version == 0 {
		h.Version = WireVersion
	}
	le := binary.LittleEndian
	le.PutUint32(f[offMagic:], frameMagic)
	le.PutUint16(f[offVersion:], h.Version)
	f[offType] = byte(h.Type)
	f[offStatus] = byte(h.Status)
	copy(f[offTransfer:], h.Transfer[:])
	le.PutUint32(f[offAttempt:], h.Attempt)
	le.PutUint64(f[offGeneration:], h.Generation)
	le.PutUint64(f[offLength:], h.Length)
	le.PutUint64(f[offCheck:], h.Check)
	le.PutUint64(f[offSum:], xxh3.Hash(f[:offSum]))
	return append(b, f[:]...)
}

// errMalformed: bytes that are no frame. The stream is out of step and its connection must close.
var errMalformed = errors.New("malformed frame")

// versionError: a frame of another wire version. Only the first 8 bytes keep their meaning.
type versionError struct{ got uint16 }

func (e versionError) Error() string {
	return fmt.Sprintf("peer speaks wire version %d, this process %d", e.got, WireVersion)
}

// parseHeader decodes the first headerBytes of f. Errors are errMalformed or a versionError.
func parseHeader(f []byte) (header, error) {
	le := binary.LittleEndian
	if m := le.Uint32(f[offMagic:]); m != frameMagic {
		return header{}, fmt.Errorf("%w: magic %#08x, want %#08x", errMalformed, m, uint32(frameMagic))
	}
	if v := le.Uint16(f[offVersion:]); v != WireVersion {
		return header{}, versionError{v}
	}
	if got, want := le.Uint64(f[offSum:]), xxh3.Hash(f[:offSum]); got != want {
		return header{}, fmt.Errorf("%w: header sum %#016x, want %#016x", errMalformed, got, want)
	}
	h := header{
		Version:    le.Uint16(f[offVersion:]),
		Type:       frameType(f[offType]),
		Status:     status(f[offStatus]),
		Transfer:   transferID(f[offTransfer : offTransfer+16]),
		Attempt:    le.Uint32(f[offAttempt:]),
		Generation: le.Uint64(f[offGeneration:]),
		Length:     le.Uint64(f[offLength:]),
		Check:      le.Uint64(f[offCheck:]),
	}
	if le.Uint32(f[offReserved:]) != 0 || h.Check != 0 && h.Type != frameData {
		return header{}, fmt.Errorf("%w: reserved bytes are not zero", errMalformed)
	}
	return h, nil
}

// readHeader reads one header. At the end of the stream it returns io.EOF.
func readHeader(r io.Reader) (header, error) {
	f := make([]byte, headerBytes)
	if _, err := io.ReadFull(r, f); err != nil {
		return header{}, err
	}
	return parseHeader(f)
}

// readText reads a body that is text.
func readText(r io.Reader, h header) ([]byte, error) {
	if h.Length > maxTextBytes {
		return nil, fmt.Errorf("%w: body of %d bytes in a frame of type %d, at most %d",
			errMalformed, h.Length, h.Type, maxTextBytes)
	}
	if h.Length == 0 {
		return nil, nil
	}
	b := make([]byte, h.Length)
	_, err := io.ReadFull(r, b)
	return b, err
}

// appendText appends a whole frame whose body is text, cut to maxTextBytes.
func appendText(b []byte, h header, text string) []byte {
	text = text[:min(len(text), maxTextBytes)]
	h.Length = uint64(len(text))
	return append(h.append(b), text...)
}
