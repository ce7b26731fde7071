// SPDX-License-Identifier: Apache-2.0

package media

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// readAnswer reads and closes the body of a final answer.
func readAnswer(resp *http.Response, maxBytes int64) ([]byte, error) {
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fetchError(nil, "the server answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	// The transport undoes gzip, which it asked for; anything else was not asked for.
	if c := resp.Header.Get("Content-Encoding"); c != "" && c != "identity" {
		return nil, fetchError(nil, "the server sent an encoding that is not supported")
	}
	if resp.ContentLength > maxBytes {
		return nil, tooLong(maxBytes)
	}
	body, err := readUpTo(resp.Body, resp.ContentLength, maxBytes)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fetchError(err, "the answer was cut off after %d bytes", len(body))
	case err != nil:
		return nil, transportError(err)
	case int64(len(body)) > maxBytes:
		return nil, tooLong(maxBytes)
	case len(body) == 0:
		return nil, &Error{Kind: ErrEmpty, Msg: "Failed to fetch image: the answer is empty"}
	}
	return body, nil
}

func tooLong(maxBytes int64) error {
	return &Error{Kind: ErrTooLarge, Msg: fmt.Sprintf("Failed to fetch image: the answer exceeds the limit of %d bytes", maxBytes)}
}

// readUpTo reads r to its end, or one byte more than maxBytes. The buffer grows with what has
// arrived, not with what was announced, so that a server pays for the memory that it takes.
func readUpTo(r io.Reader, announced, maxBytes int64) ([]byte, error) {
	const first = 64 << 10
	buf := make([]byte, 0, first)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case err == io.EOF:
			return buf, nil
		case err != nil || int64(len(buf)) > maxBytes:
			return buf, err
		case len(buf) == cap(buf):
			size := min(2*int64(cap(buf)), maxBytes+1)
			if announced >= int64(len(buf)) && announced < size {
				size = announced + 1 // the one that meets the end of the body
			}
			buf = append(make([]byte, 0, max(size, int64(len(buf))+1)), buf...)
		}
	}
}

// fetchError makes an Error about the other server. The text never holds an address or a name.
func fetchError(cause error, format string, args ...any) error {
	return &Error{Kind: ErrFetch, Msg: "Failed to fetch image: " + fmt.Sprintf(format, args...), Err: cause}
}

// transportError classifies what went wrong on the way. A refusal of dial passes through.
func transportError(err error) error {
	var e *Error
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var name x509.HostnameError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &cert), errors.As(err, &name):
		return fetchError(err, "the server's certificate is not trusted")
	case errors.As(err, &record), errors.As(err, &alert):
		return fetchError(err, "the server does not speak TLS as expected")
	}
	return fetchError(err, "the connection failed")
}
