// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"afterimage/internal/openai"
)

// reply is the client's side of a request.
type reply struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	started bool   // the status is on its way
	stream  bool   // an event stream was started
	before  func() // runs before the first byte; may be nil
}

// start sends status and headers.
func (o *reply) start(contentType string) {
	if o.before != nil {
		o.before()
	}
	o.w.Header().Set("Content-Type", contentType)
	o.started = true
	o.w.WriteHeader(http.StatusOK)
}

// write sends b at once. A client that does not read for the time-out is given up: the deadline rolls
// with every write and never bounds the answer as a whole.
func (o *reply) write(b []byte) error {
	o.control.SetWriteDeadline(time.Now().Add(o.timeout))
	if _, err := o.w.Write(b); err != nil {
		return err
	}
	return o.control.Flush()
}

// fail ends a stream that has begun with an error frame, so that no client takes it for whole.
func (o *reply) fail(err error) {
	if o.stream {
		o.write(openai.AppendErrorFrame(nil, clientError(err)))
	}
}

// maxAnswerBytes bounds an answer that is not streamed; it is held whole, so that a worker that dies
// half way is still a proper error.
const maxAnswerBytes = 64 << 20

// relay passes P/D's answer on, byte for byte.
func (g *Gateway) relay(ctx context.Context, resp *http.Response, out *reply, pd worker) error {
	ct := resp.Header.Get("Content-Type")
	if kind, _, _ := mime.ParseMediaType(ct); kind == "text/event-stream" {
		return g.relayStream(ctx, resp, out, pd, ct)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return g.broken(ctx, pd, err)
	}
	if len(body) > maxAnswerBytes {
		return fmt.Errorf("%s: the answer is larger than %d bytes", pd.Seen.Name, maxAnswerBytes)
	}
	out.w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	out.start(ct)
	return out.write(body)
}

// relayStream passes whole events on as they come and makes sure that the end is a real one.
func (g *Gateway) relayStream(ctx context.Context, resp *http.Response, out *reply, pd worker, contentType string) error {
	events := openai.NewEventReader(resp.Body, openai.DefaultMaxEventBytes)
	for {
		ev, err := events.Next()
		if err != nil {
			return g.streamEnd(ctx, pd, err)
		}
		if !out.started {
			out.start(contentType)
			out.stream = true
		}
		if err := out.write(ev.Raw); err != nil {
			return fmt.Errorf("%w: the client stopped reading: %v", context.Canceled, err)
		}
		if ev.Done {
			return nil
		}
	}
}

// streamEnd explains a stream that ended before its end marker.
func (g *Gateway) streamEnd(ctx context.Context, pd worker, err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.New("the answer ended before its end marker")
	}
	return g.broken(ctx, pd, err)
}
