// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"time"

	"afterimage/internal/openai"
)

// reply is the client's side of a request. It is used by one goroutine.
type reply struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	started bool // the status is on its way
	stream  bool // an event stream was started
}

func newReply(w http.ResponseWriter, timeout time.Duration) *reply {
	return &reply{w: w, control: http.NewResponseController(w), timeout: timeout}
}

// start sends status and headers.
func (o *reply) start(contentType string) {
	o.w.Header().Set("Content-Type", contentType)
	o.started = true
	o.w.WriteHeader(http.StatusOK)
}

// write sends b at once. A client that does not read for the time-out is given up: the deadline rolls
// with every write and never bounds the answer as a whole.
func (o *reply) write(b []byte) error {
	_ = o.control.SetWriteDeadline(time.Now().Add(o.timeout)) // a connection without deadlines needs none
	if _, err := o.w.Write(b); err != nil {
		return err
	}
	return o.control.Flush()
}

// fail ends a stream that has begun with an error frame, so that no client takes it for whole. An answer
// that is not streamed is cut short of its Content-Length, which every client notices.
func (o *reply) fail(err error) {
	if o.stream {
		_ = o.write(openai.AppendErrorFrame(nil, clientError(err))) // nobody is left to tell
	}
}

// end lifts the deadline of the last write, which the connection's next request would inherit.
func (o *reply) end() {
	if o.started {
		_ = o.control.SetWriteDeadline(time.Time{})
	}
}
