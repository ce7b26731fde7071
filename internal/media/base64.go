// SPDX-License-Identifier: Apache-2.0

package media

import "encoding/binary"

// notDigit marks a byte that is no base64 digit, in bits that no sum of digits reaches.
const notDigit = 1 << 24

// digits[k][c] is the value of digit c at place k of a quad, already shifted, so that a quad is four
// look-ups and three ORs. The 4 KiB stay in the first-level cache. Both alphabets are in it.
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

// decodeBase64 decodes what ParseDataURL accepts, in one allocation. The size is exact for clean
// base64, padded or not, and a bound for all else.
func decodeBase64(src []byte) ([]byte, error) {
	size := (len(src)*3 + 3) / 4
	if n := len(src); n > 0 && n%4 == 0 {
		size = n / 4 * 3
		if src[n-1] == '=' {
			size--
		}
		if src[n-2] == '=' {
			size--
		}
	}
	return decodeDigits(src, size)
}

// decodeDigits decodes into size bytes, which is enough for src.
func decodeDigits(src []byte, size int) ([]byte, error) {
	dst := make([]byte, size)
	n := 0
	for {
		q := quads(dst[n:], src)
		n, src = n+3*q, src[4*q:]
		v, got, rest, err := looseQuad(src)
		if err != nil {
			return nil, err
		}
		src = rest
		if got == 4 {
			n += copy(dst[n:], []byte{byte(v >> 16), byte(v >> 8), byte(v)})
			continue
		}
		if got > 1 {
			n += copy(dst[n:], []byte{byte(v >> 16), byte(v >> 8)}[:got-1])
		}
		return dst[:n], nil
	}
}

// quads decodes groups of four digits for as long as they hold nothing else, and returns how many.
func quads(dst, src []byte) int {
	n := 0
	for len(src) >= 8 && len(dst) >= 8 {
		s := binary.LittleEndian.Uint64(src)
		hi := digits[0][byte(s)] | digits[1][byte(s>>8)] | digits[2][byte(s>>16)] | digits[3][byte(s>>24)]
		lo := digits[0][byte(s>>32)] | digits[1][byte(s>>40)] | digits[2][byte(s>>48)] | digits[3][byte(s>>56)]
		if (hi|lo)&notDigit != 0 {
			break
		}
		binary.BigEndian.PutUint64(dst, uint64(hi)<<40|uint64(lo)<<16)
		src, dst = src[8:], dst[6:]
		n += 2
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
