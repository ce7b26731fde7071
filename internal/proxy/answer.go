// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	"afterimage/internal/openai"
)

// maxAnswerBytes bounds an answer that is not streamed; it is held whole, so that a worker that dies
// half way is still a proper error.
const maxAnswerBytes = 64 << 20

// BrokenError: a worker's answer did not come whole.
type BrokenError struct{ Err error }

func (e *BrokenError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *BrokenError) Unwrap() error { return e.Err }

// ErrToldFailure: the worker ended its stream with an error, which the client has read.
var ErrToldFailure = errors.New("the answer ended with an error")

// Pass hands a worker's answer on, byte for byte. alive is called with each sign of life of the worker.
// Errors are *BrokenError, ErrToldFailure, and context.Canceled if the client has left; any other is an
// answer that is of no use.
func (o *Reply) Pass(resp *http.Response, alive func()) error {
	ct := resp.Header.Get("Content-Type")
	if isStream(ct) {
		return o.passStream(resp.Body, ct, alive)
	}
	body, err := readAnswer(resp)
	if err == nil && len(body) <= maxAnswerBytes && !json.Valid(body) {
		err = fmt.Errorf("an answer of %d bytes is not whole JSON", len(body))
	}
	if err != nil {
		return &BrokenError{err}
	}
	if len(body) > maxAnswerBytes {
		return fmt.Errorf("the answer is larger than %d bytes", maxAnswerBytes)
	}
	o.count(body)
	o.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	o.start(ct)
	return left(o.write(body))
}

// isStream says whether a Content-Type is that of events.
func isStream(contentType string) bool {
	if contentType == "application/json" {
		return false // at once: most are
	}
	kind, _, _ := mime.ParseMediaType(contentType)
	return kind == "text/event-stream"
}

// readAnswer reads an answer as a whole, up to one byte more than it may have.
func readAnswer(resp *http.Response) ([]byte, error) {
	var b bytes.Buffer
	if n := resp.ContentLength; n > 0 && n <= inlineBytes { // else it grows with what comes
		b.Grow(int(n) + bytes.MinRead)
	}
	_, err := b.ReadFrom(io.LimitReader(resp.Body, maxAnswerBytes+1))
	return b.Bytes(), err
}

// left says that a write failed because the client is not there to read.
func left(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: the client stopped reading: %v", context.Canceled, err)
}

// passStream passes whole events on as they come and makes sure that the end is a real one: an end
// marker after a finish reason.
func (o *Reply) passStream(body io.Reader, contentType string, alive func()) error {
	events := openai.NewEventReader(body, openai.DefaultMaxEventBytes)
	finished, failed := false, false
	for {
		ev, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return &BrokenError{errors.New("the answer ended before its end marker")}
		case err != nil:
			return &BrokenError{err}
		case ev.Done && !finished && !failed:
			return &BrokenError{errors.New("the answer ended without a finish reason")}
		}
		alive()
		o.count(ev.Raw)
		finished, failed = finished || ev.Finished, failed || ev.Failed
		if !o.started {
			o.start(contentType)
			o.stream = true
		}
		if err := o.write(ev.Raw); err != nil {
			return left(err)
		}
		if ev.Done && failed {
			return ErrToldFailure
		}
		if ev.Done {
			return nil
		}
	}
}
