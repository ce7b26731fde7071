// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"time"

	"afterimage/internal/openai"
)

// Reply is the client's side of a request. It is used by one goroutine.
type Reply struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	started bool // the status is on its way
	stream  bool // an event stream was started
	sent    int64
	usage   openai.Usage
	counted bool // usage is known
}

// Sent returns how many bytes of the answer went out, its head left out.
func (o *Reply) Sent() int64 { return o.sent }

// Usage returns the tokens that the answer counted; ok is false if it did not.
func (o *Reply) Usage() (u openai.Usage, ok bool) { return o.usage, o.counted }

// count takes in what an answer, or an event of it, says of its tokens.
func (o *Reply) count(b []byte) {
	if u, ok := openai.ReadUsage(b); ok {
		o.usage, o.counted = u, true
	}
}

// NewReply returns the reply that goes to w; each write may take timeout.
func NewReply(w http.ResponseWriter, timeout time.Duration) *Reply {
	return &Reply{w: w, control: http.NewResponseController(w), timeout: timeout}
}

// Started says whether the status is on its way: no other can be sent.
func (o *Reply) Started() bool { return o.started }

// start sends status and headers.
func (o *Reply) start(contentType string) {
	o.w.Header().Set("Content-Type", contentType)
	o.started = true
	o.w.WriteHeader(http.StatusOK)
}

// write sends b at once. A client that does not read for the time-out is given up: the deadline rolls
// with every write and never bounds the answer as a whole.
func (o *Reply) write(b []byte) error {
	_ = o.control.SetWriteDeadline(time.Now().Add(o.timeout)) // a connection without deadlines needs none
	n, err := o.w.Write(b)
	o.sent += int64(n)
	if err != nil {
		return err
	}
	return o.control.Flush()
}

// Error answers with err (see openai.AsError) as a whole. Nothing may have been started.
func (o *Reply) Error(err error) {
	o.sent += int64(len(openai.AsError(err).AppendJSON(nil)))
	openai.WriteError(o.w, err)
}

// Fail ends a stream that has begun with an error frame, so that no client takes it for whole. An answer
// that is not streamed is cut short of its Content-Length, which every client notices.
func (o *Reply) Fail(err error) {
	if o.stream {
		_ = o.write(openai.AppendErrorFrame(nil, err)) // nobody is left to tell
	}
}

// End lifts the deadline of the last write, which the connection's next request would inherit.
func (o *Reply) End() {
	if o.started {
		_ = o.control.SetWriteDeadline(time.Time{})
	}
}
