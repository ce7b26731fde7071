// SPDX-License-Identifier: Apache-2.0

package media

import "encoding/binary"

// notDigit marks a byte that is no base64 digit, in bits that no sum of digits reaches.
const notDigit = 1 << 24

// digits[k][c] is the value of digit c at place k of a quad, already shifted. Both alphabets are in it.
var digits = func() (t [4][256]uint32) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	for k := range t {
		for c := range t[k] {
			t[k][c] = notDigit
		}
		for v := range len(alphabet) {
			t[k][alphabet[v]] = uint32(v) << (18 - 6*k)
		}
		t[k]['-'], t[k]['_'] = t[k]['+'], t[k]['/']
	}
	return t
}()

// pairs[lo|hi<<8] is the value of the digits lo and hi, twelve bits, so that a quad is two look-ups. Of
// its 128 KiB, clean base64 touches 12, which stay in the first-level cache.
var pairs = func() *[1 << 16]uint16 {
	t := new([1 << 16]uint16)
	for i := range t {
		t[i] = notPair
		if v := digits[2][i&0xff] | digits[3][i>>8]; v < notDigit {
			t[i] = uint16(v)
		}
	}
	return t
}()

// notPair marks two bytes that are not both digits.
const notPair = 1 << 15

// decodeBase64 decodes what ParseDataURL accepts. The result lies at the start of b, which it
// overwrites: output never overtakes input, since four digits give three bytes.
func decodeBase64(b []byte) ([]byte, error) {
	n, src := 0, b
	for {
		k := blocks(b[n:], src)
		n, src = n+blockBytes*k, src[blockDigits*k:]
		q := quads(b[n:], src)
		n, src = n+3*q, src[4*q:]
		v, got, rest, err := looseQuad(src)
		if err != nil {
			return nil, err
		}
		src = rest
		if got == 4 {
			n += copy(b[n:], []byte{byte(v >> 16), byte(v >> 8), byte(v)})
			continue
		}
		if got > 1 {
			n += copy(b[n:], []byte{byte(v >> 16), byte(v >> 8)}[:got-1])
		}
		return b[:n], nil
	}
}

// quads decodes groups of four digits, four at a time, for as long as they hold nothing else, and
// returns how many. dst may overlap src if it does not begin behind it. Two bytes of what each store
// writes are meant for the next one; the digits in their place have been read by then.
func quads(dst, src []byte) int {
	n := 0
	for len(src) >= 16 && len(dst) >= 16 {
		in, out := (*[16]byte)(src), (*[16]byte)(dst) // one check of bounds for all
		s, t := binary.LittleEndian.Uint64(in[:8]), binary.LittleEndian.Uint64(in[8:])
		a, b := uint64(pairs[uint16(s)]), uint64(pairs[uint16(s>>16)])
		c, d := uint64(pairs[uint16(s>>32)]), uint64(pairs[s>>48])
		e, f := uint64(pairs[uint16(t)]), uint64(pairs[uint16(t>>16)])
		g, h := uint64(pairs[uint16(t>>32)]), uint64(pairs[t>>48])
		if (a|b|c|d|e|f|g|h)&notPair != 0 {
			break
		}
		binary.BigEndian.PutUint64(out[:], a<<52|b<<40|c<<28|d<<16)
		binary.BigEndian.PutUint64(out[6:], e<<52|f<<40|g<<28|h<<16)
		src, dst = src[16:], dst[12:]
		n += 4
	}
	return n
}

// looseQuad collects up to four digits, skipping white space and undoing percent escapes. With fewer
// than four it has seen the end: the rest holds nothing but padding.
func looseQuad(src []byte) (v uint32, got int, rest []byte, err error) {
	pad := 0
	for got < 4 && len(src) > 0 {
		c := src[0]
		src = src[1:]
		if c == '%' {
			var ok bool
			if c, ok = unhex(src); !ok {
				return 0, 0, nil, badURL("The data URL has a broken percent escape.")
			}
			src = src[2:]
		}
		switch d := digits[got][c]; {
		case c == ' ' || c >= '\t' && c <= '\r':
		case c == '=':
			pad++
		case d == notDigit:
			return 0, 0, nil, badURL("Non-base64 digit found")
		case pad > 0:
			return 0, 0, nil, badURL("Excess data after padding")
		default:
			v |= d
			got++
		}
	}
	if got == 1 || pad > 0 && (got == 0 || got+pad > 4) {
		return 0, 0, nil, badURL("Incorrect padding")
	}
	return v, got, src, nil
}
