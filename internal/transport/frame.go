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
const WireVersion = 1

// A frame is a header of 64 bytes, little endian, and a body of the length it names. docs/wire.md
// describes the same for readers.
const (
	offMagic      = 0  // u32 "AFW1"
	offVersion    = 4  // u16 WireVersion
	offType       = 6  // u8 frame type
	offStatus     = 7  // u8 status; 0 in all but ack and the answer to hello
	offTransfer   = 8  // [16]byte transfer id; 0 in hello, ping and pong
	offAttempt    = 24 // u32 attempt of the transfer
	offReserved0  = 28 // u32 0
	offGeneration = 32 // u64 generation of the receiver; 0 in the sender's hello
	offLength     = 40 // u64 length of the body that follows the header
	offReserved1  = 48 // u64 0
	offSum        = 56 // u64 XXH3-64 of bytes 0..55
	headerBytes   = 64

	frameMagic = 'A' | 'F'<<8 | 'W'<<16 | '1'<<24
)

// frameType says what a frame is for. Values are never reused.
type frameType uint8

// Protocol flow. The sender dials. Both sides send one hello; a receiver that refuses puts a status
// and a reason into its own and closes. Then the sender writes data, cancel and ping in any order,
// and the receiver answers each data with one ack and each ping with one pong, in order.
const (
	frameHello  frameType = 1 // both ways: JSON body {"engine","cols"}; the receiver's carries its generation
	frameData   frameType = 2 // sender: body is one whole object
	frameAck    frameType = 3 // receiver: status of one data frame, body is a reason as text
	frameCancel frameType = 4 // sender: the transfer will not be written; no body, no answer
	framePing   frameType = 5 // sender: no body
	framePong   frameType = 6 // receiver: no body
)

// maxTextBytes bounds the body of hello and ack, which is read into fresh memory.
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

// parseHeader decodes f. Errors are errMalformed or a versionError.
func parseHeader(f *[headerBytes]byte) (header, error) {
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
	if le.Uint32(f[offReserved0:]) != 0 || le.Uint64(f[offReserved1:]) != 0 {
		return header{}, fmt.Errorf("%w: reserved bytes are not zero", errMalformed)
	}
	return header{
		Version:    le.Uint16(f[offVersion:]),
		Type:       frameType(f[offType]),
		Status:     status(f[offStatus]),
		Transfer:   transferID(f[offTransfer : offTransfer+16]),
		Attempt:    le.Uint32(f[offAttempt:]),
		Generation: le.Uint64(f[offGeneration:]),
		Length:     le.Uint64(f[offLength:]),
	}, nil
}

// readHeader reads one header. At the end of the stream it returns io.EOF.
func readHeader(r io.Reader) (header, error) {
	var f [headerBytes]byte
	if _, err := io.ReadFull(r, f[:]); err != nil {
		return header{}, err
	}
	return parseHeader(&f)
}

// readText reads the body of a hello or an ack.
func readText(r io.Reader, h header) ([]byte, error) {
	if h.Length > maxTextBytes {
		return nil, fmt.Errorf("%w: body of %d bytes in a frame of type %d, at most %d",
			errMalformed, h.Length, h.Type, maxTextBytes)
	}
	b := make([]byte, h.Length)
	_, err := io.ReadFull(r, b)
	return b, err
}

// appendText appends a whole frame whose body is text, cut to maxTextBytes.
func appendText(b []byte, h header, text []byte) []byte {
	text = text[:min(len(text), maxTextBytes)]
	h.Length = uint64(len(text))
	return append(h.append(b), text...)
}
