// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"

	"afterimage/internal/embedding"
)

// Reception decodes and digests the file in a data: URL while the URL comes in, piece by piece. It accepts what
// ParseDataURL does, and like it writes the file over the URL, so that a picture of megabytes is passed over once
// and takes no second buffer. URLs without base64 it leaves alone.
//
// It is the tap of an openai scan (openai.Tap).
type Reception struct {
	head  []byte // up to the comma
	state receptionState
	out   []byte // the file so far; it lies where the payload lay
	sum   embedding.Digester
	done  int // bytes of out that are in sum

	quad    uint32 // digits that are not in out yet, and how many
	got     int
	pad     int
	escaped []byte // a percent escape that is not whole yet
	err     error
}

type receptionState int

const (
	inHead    receptionState = iota
	inPayload                // of base64
	aloof                    // no data URL, or one without base64
)

// NewReception returns a Reception of one URL.
func NewReception() *Reception { return &Reception{} }

// sumAt is how much is decoded before it is summed: what was written is in the cache of the processor still, and
// the hash runs at its full speed.
const sumAt = 64 << 10

// Piece takes the next piece of the URL. Unless it is a copy of what an escape stands for, the file is written over it.
func (r *Reception) Piece(p []byte, copied bool) {
	if r.state == inHead {
		p = r.takeHead(p)
	}
	if r.state != inPayload || r.err != nil || len(p) == 0 {
		return
	}
	if r.out == nil {
		if copied { // there is no place for the file yet
			r.state = aloof
			return
		}
		if IsDataURL(bytes.TrimLeft(p, " \t\r\n")) {
			r.err = badURL("The data URL holds another data URL.")
			return
		}
		r.out = p[:0]
	}
	r.payload(p)
	if len(r.out)-r.done >= sumAt {
		r.addSum()
	}
}

func (r *Reception) addSum() {
	r.sum.Write(r.out[r.done:])
	r.done = len(r.out)
}

// takeHead takes what stands before the comma and returns what is left of p.
func (r *Reception) takeHead(p []byte) []byte {
	comma := bytes.IndexByte(p, ',')
	if comma < 0 {
		if r.head = append(r.head, p[:min(len(p), maxDataHeadBytes)]...); len(r.head) > maxDataHeadBytes+len(dataScheme) {
			r.state = aloof
		}
		return nil
	}
	r.head = append(r.head, p[:comma]...)
	r.state = aloof
	if !IsDataURL(r.head) || len(r.head)-len(dataScheme) >= maxDataHeadBytes {
		return nil
	}
	if at := bytes.LastIndexByte(r.head, ';'); at >= 0 && bytes.EqualFold(bytes.TrimSpace(r.head[at+1:]), []byte("base64")) {
		r.state = inPayload
	}
	return p[comma+1:]
}

// payload decodes p: blocks of clean digits at full speed, everything else byte by byte.
func (r *Reception) payload(p []byte) {
	for len(p) > 0 {
		if r.got == 0 && r.pad == 0 && len(r.escaped) == 0 {
			n, dst := 0, r.out[len(r.out):cap(r.out)]
			k := blocks(dst, p)
			n, p = blockBytes*k, p[blockDigits*k:]
			q := quads(dst[n:], p)
			r.out, p = r.out[:len(r.out)+n+3*q], p[4*q:]
		}
		// Up to four digits by hand, and then a try at full speed again.
		for len(p) > 0 {
			c := p[0]
			p = p[1:]
			if r.one(c); r.err != nil {
				return
			}
			if r.got == 0 && r.pad == 0 && len(r.escaped) == 0 {
				break
			}
		}
	}
}

// one takes one byte of the payload.
func (r *Reception) one(c byte) {
	if c == '%' || len(r.escaped) > 0 {
		if r.escaped = append(r.escaped, c); len(r.escaped) < 3 {
			return
		}
		var ok bool
		if c, ok = unhex(r.escaped[1:]); !ok {
			r.err = badURL("The data URL has a broken percent escape.")
			return
		}
		r.escaped = r.escaped[:0]
	}
	switch d := digits[r.got&3][c]; {
	case c == ' ' || c >= '\t' && c <= '\r':
	case c == '=':
		r.pad++
	case d == notDigit:
		r.err = badURL("Non-base64 digit found")
	case r.pad > 0:
		r.err = badURL("Excess data after padding")
	default:
		r.quad |= d
		if r.got++; r.got == 4 {
			r.out = append(r.out, byte(r.quad>>16), byte(r.quad>>8), byte(r.quad))
			r.quad, r.got = 0, 0
		}
	}
}

// End takes the end of the URL; whole is false if it holds what is no printable ASCII.
func (r *Reception) End(whole bool) {
	if r.state != inPayload || r.err != nil {
		return
	}
	switch {
	case !whole:
		r.err = badURL("Non-base64 digit found")
	case len(r.escaped) > 0:
		r.err = badURL("The data URL has a broken percent escape.")
	case r.got == 1 || r.pad > 0 && (r.got == 0 || r.got+r.pad > 4):
		r.err = badURL("Incorrect padding")
	case r.got > 1:
		r.out = append(r.out, []byte{byte(r.quad >> 16), byte(r.quad >> 8)}[:r.got-1]...)
		fallthrough
	default:
		if len(r.out) == 0 {
			r.err = &Error{Kind: ErrEmpty, Msg: "The data URL has an empty payload."}
			return
		}
		r.addSum()
	}
}

// Took says whether the URL was one for File.
func (r *Reception) Took() bool { return r.state == inPayload }

// File returns the file and its digest, after End, if the Reception took the URL. The file lies where the URL lay.
func (r *Reception) File() ([]byte, embedding.Digest, error) {
	if r.err != nil {
		return nil, embedding.Digest{}, r.err
	}
	return r.out, r.sum.Digest(), nil
}
