// SPDX-License-Identifier: Apache-2.0

package media

import "bytes"

const dataScheme = "data:"

// maxDataHeadBytes bounds what stands between "data:" and the comma.
const maxDataHeadBytes = 4 << 10

// IsDataURL reports whether url has the scheme data, in any case.
func IsDataURL(url []byte) bool {
	return len(url) >= len(dataScheme) && bytes.EqualFold(url[:len(dataScheme)], []byte(dataScheme))
}

// ParseDataURL returns the bytes of a data: URL and the media type as written, in lower case and
// without parameters; it is empty when the URL has none. The type is not to be trusted.
//
// It decodes in place: the result is a part of url, whose content is lost, even with an error. A
// picture of megabytes so takes no second buffer.
//
// Accepted:
//   - the scheme and the word base64 in any case, spaces round the word
//   - any media type (image/svg+xml too), or none; any parameters before ";base64"
//   - base64 in the standard and the URL-safe alphabet, even mixed
//   - base64 with line breaks, tabs and spaces anywhere, or percent-encoded characters
//   - base64 without some or all of its padding
//   - without ";base64": a percent-encoded payload, taken as bytes
//
// Refused, as ErrURL: another scheme or none (so bare base64 too), no comma, a data: URL inside a
// data: URL, other characters in base64, one left-over base64 digit, anything after the padding, a
// broken percent escape, more than 4 KiB before the comma. An empty payload is ErrEmpty.
func ParseDataURL(url []byte) (data []byte, mediaType string, err error) {
	if !IsDataURL(url) {
		return nil, "", badURL("The URL must be either a HTTP, data or file URL.")
	}
	rest := url[len(dataScheme):]
	comma := bytes.IndexByte(rest[:min(len(rest), maxDataHeadBytes)], ',')
	if comma < 0 {
		return nil, "", badURL("The data URL has no comma before its payload.")
	}
	head, payload := rest[:comma], rest[comma+1:]
	if IsDataURL(bytes.TrimLeft(payload, " \t\r\n")) {
		return nil, "", badURL("The data URL holds another data URL.")
	}
	end := len(head)
	if i := bytes.IndexByte(head, ';'); i >= 0 {
		end = i
	}
	mediaType = string(bytes.ToLower(bytes.TrimSpace(head[:end])))
	last := head[bytes.LastIndexByte(head, ';')+1:]
	if end < len(head) && bytes.EqualFold(bytes.TrimSpace(last), []byte("base64")) {
		data, err = decodeBase64(payload)
	} else {
		data, err = unescape(payload)
	}
	if err != nil {
		return nil, "", err
	}
	if len(data) == 0 {
		return nil, "", &Error{Kind: ErrEmpty, Msg: "The data URL has an empty payload."}
	}
	return data, mediaType, nil
}

// unescape undoes percent-encoding. The result lies at the start of b, which it overwrites.
func unescape(b []byte) ([]byte, error) {
	out, src := b[:0], b
	for {
		i := bytes.IndexByte(src, '%')
		if i < 0 {
			return append(out, src...), nil
		}
		c, ok := unhex(src[i+1:])
		if !ok {
			return nil, badURL("The data URL has a broken percent escape.")
		}
		out = append(append(out, src[:i]...), c)
		src = src[i+3:]
	}
}

// unhex reads the two digits of a percent escape.
func unhex(b []byte) (byte, bool) {
	if len(b) < 2 {
		return 0, false
	}
	var v byte
	for _, c := range b[:2] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		v = v<<4 | c
	}
	return v, true
}

func badURL(msg string) error { return &Error{Kind: ErrURL, Msg: msg} }
