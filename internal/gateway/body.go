// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"afterimage/internal/openai"
)

// A body must come at minBodyRate once bodyGrace has passed, so that a client that sends a byte at a
// time holds neither memory nor a connection for long. 64 KiB/s is below any network that pictures are
// worth sending over.
const (
	bodyGrace   = 10 * time.Second
	minBodyRate = 64 << 10 // bytes per second
)

// takeBody reads the request's body, within the limit on its size and at a decent pace. The caller has
// the one share of the buffer.
func (g *Gateway) takeBody(w http.ResponseWriter, r *http.Request) (*buffer, error) {
	if c := r.Header.Get("Content-Encoding"); c != "" && c != "identity" {
		return nil, &openai.Error{Status: http.StatusUnsupportedMediaType, Type: openai.TypeBadRequest,
			Message: fmt.Sprintf("A request body in Content-Encoding %q is not supported: send it as it is.", c)}
	}
	limit := g.cfg.MaxBodyBytes
	if r.ContentLength > limit {
		return nil, openai.TooLarge(limit)
	}
	rc := http.NewResponseController(w)
	paced := &pacedReader{r: http.MaxBytesReader(w, r.Body, limit), rc: rc, start: time.Now(), grace: cmp.Or(g.cfg.BodyGrace, bodyGrace)}
	body, err := readGrowing(paced, r.ContentLength)
	if err == nil {
		// Lifted again: the server goes on reading, to see the client leave. After an error the deadline
		// stands, since the server reads what is left of a body before it answers.
		_ = rc.SetReadDeadline(time.Time{})
	}
	return body, bodyError(err, paced.n, limit)
}

// pacedReader gives each Read the time that the pace allows for what has come so far.
type pacedReader struct {
	r     io.Reader
	rc    *http.ResponseController
	start time.Time
	grace time.Duration
	n     int64
}

func (p *pacedReader) Read(b []byte) (int, error) {
	by := p.start.Add(p.grace + time.Duration(p.n)*time.Second/minBodyRate)
	if err := p.rc.SetReadDeadline(by); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := p.r.Read(b)
	p.n += int64(n)
	return n, err
}

// readGrowing reads r to its end. The buffer grows with what has come, not with what was announced
// (-1: nothing was), so that a client pays for the memory that it takes; bodies of common size are
// read into one buffer all the same.
func readGrowing(r io.Reader, announced int64) (*buffer, error) {
	const first, trust = 64 << 10, 4 << 20
	size := int64(first)
	if announced >= 0 {
		size = min(announced+1, trust) // one more, which meets the end
	}
	buf := newBuffer(size)
	for {
		n, err := r.Read(buf.b[len(buf.b):cap(buf.b)])
		buf.b = buf.b[:len(buf.b)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			buf.release()
			return nil, err
		}
		if len(buf.b) == cap(buf.b) {
			size := 2 * int64(cap(buf.b))
			if announced >= int64(len(buf.b)) {
				size = min(size, announced+1)
			}
			larger := newBuffer(size)
			larger.b = append(larger.b, buf.b...)
			buf.release()
			buf = larger
		}
	}
}

// bodyError says why a body was not taken after n bytes.
func bodyError(err error, n, limit int64) error {
	var big *http.MaxBytesError
	var network *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &big):
		return openai.TooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &openai.Error{Status: http.StatusRequestTimeout, Type: openai.TypeTimeout,
			Message: fmt.Sprintf("The request body came too slowly: %d bytes in the time given.", n)}
	case errors.As(err, &network):
		return fmt.Errorf("%w: the connection broke after %d bytes of the body: %v", context.Canceled, n, err)
	}
	return openai.BadRequest("", "The request body could not be read after %d bytes: %v.", n, err)
}
