// SPDX-License-Identifier: Apache-2.0

package proxy

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

// A body must come at minBodyRate once its grace has passed, so that a client that sends a byte at a
// time holds neither memory nor a connection for long. 64 KiB/s is below any network that pictures are
// worth sending over.
const (
	bodyGrace   = 10 * time.Second
	minBodyRate = 64 << 10 // bytes per second
)

// BodyLimits bound a request's body.
type BodyLimits struct {
	MaxBytes int64
	Grace    time.Duration // how long it may take to come to a decent pace; 0 stands for 10 s
}

// TakeBody reads the whole body of r, within its limits. The caller has the one share of the buffer.
// Every error is one to tell the client, or context.Canceled if it has left.
func TakeBody(w http.ResponseWriter, r *http.Request, lim BodyLimits) (*Buffer, error) {
	in, err := NewIntake(w, r, lim)
	if err != nil {
		return nil, err
	}
	return in.Rest()
}

// Intake is a body on its way in, to be looked at while it comes. It is used by one goroutine.
type Intake struct {
	buf       *Buffer
	r         io.Reader
	announced int64 // -1: nothing was
	err       error // why no more comes; io.EOF after the whole body
	explain   func(error) error
}

// NewIntake begins to read the body of r. It returns when the rest will find room in the memory that the
// body lies in, so that slices of Bytes stay valid: at once for bodies of common size, after the whole
// of one whose size was not announced.
func NewIntake(w http.ResponseWriter, r *http.Request, lim BodyLimits) (*Intake, error) {
	if c := r.Header.Get("Content-Encoding"); c != "" && c != "identity" {
		return nil, &openai.Error{Status: http.StatusUnsupportedMediaType, Type: openai.TypeBadRequest,
			Message: fmt.Sprintf("A request body in Content-Encoding %q is not supported: send it as it is.", openai.Shorten(c))}
	}
	if r.ContentLength > lim.MaxBytes {
		return nil, openai.TooLarge(lim.MaxBytes)
	}
	rc := http.NewResponseController(w)
	paced := &pacedReader{r: http.MaxBytesReader(w, r.Body, lim.MaxBytes), rc: rc, start: time.Now(), grace: cmp.Or(lim.Grace, bodyGrace)}
	in := &Intake{r: paced, announced: r.ContentLength}
	in.explain = func(err error) error {
		if errors.Is(err, io.EOF) {
			// Lifted again: the server goes on reading, to see the client leave. After an error the deadline
			// stands, since the server reads what is left of a body before it answers.
			_ = rc.SetReadDeadline(time.Time{})
			return io.EOF
		}
		return bodyError(err, paced.n, lim.MaxBytes)
	}
	if err := in.settle(); err != nil {
		in.buf.Release()
		return nil, err
	}
	return in, nil
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

// settle reads until the buffer has room for the whole body. The buffer grows with what has come, not
// with what was announced, so that a client pays for the memory that it takes: who has sent a megabyte
// is trusted with four.
func (in *Intake) settle() error {
	const first, growth = 1 << 20, 4
	size := int64(64 << 10)
	if in.announced >= 0 {
		size = min(in.announced+1, first) // one more, which meets the end
	}
	for in.buf = NewBuffer(size); in.err == nil && (in.announced < 0 || int64(cap(in.buf.b)) <= in.announced); {
		if len(in.buf.b) < cap(in.buf.b) {
			if err := in.More(); err != nil && err != io.EOF {
				return err
			}
			continue
		}
		size := growth * int64(cap(in.buf.b))
		if in.announced >= int64(len(in.buf.b)) {
			size = min(size, in.announced+1)
		}
		larger := NewBuffer(size)
		larger.b = append(larger.b, in.buf.b...)
		in.buf.Release()
		in.buf = larger
	}
	return nil
}

// pieceBytes is the most that one Read takes: what was read is looked at while it is in the cache of the
// processor.
const pieceBytes = 256 << 10

// More reads on. After nil, Bytes has grown; after io.EOF the body is whole; any other error is one to
// tell the client, and stays.
func (in *Intake) More() error {
	for empty := 0; in.err == nil; empty++ {
		n := len(in.buf.b)
		if n == cap(in.buf.b) || empty == 100 {
			// More came than was announced, which net/http does not let through, or nothing at all.
			in.err = in.explain(io.ErrNoProgress)
			break
		}
		got, err := in.r.Read(in.buf.b[n:min(cap(in.buf.b), n+pieceBytes)])
		in.buf.b = in.buf.b[:n+got]
		if err != nil {
			in.err = in.explain(err)
		}
		if got > 0 {
			return nil
		}
	}
	return in.err
}

// Bytes returns what has come so far.
func (in *Intake) Bytes() []byte { return in.buf.b }

// Rest reads to the end and hands the buffer over, with its one share. After an error there is none.
func (in *Intake) Rest() (*Buffer, error) {
	for {
		switch err := in.More(); err {
		case nil:
		case io.EOF:
			return in.buf, nil
		default:
			in.buf.Release()
			return nil, err
		}
	}
}

// bodyError says why a body was not taken after n bytes.
func bodyError(err error, n, limit int64) error {
	var big *http.MaxBytesError
	var network *net.OpError
	switch {
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
