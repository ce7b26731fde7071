// SPDX-License-Identifier: Apache-2.0

package gateway

import (
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

// toldError: the answer failed, and the stream that went out says so already.
type toldError struct{ err error }

func (e *toldError) Error() string { return e.err.Error() }
func (e *toldError) Unwrap() error { return e.err }

// relay passes P/D's answer on, byte for byte.
func (g *Gateway) relay(ctx context.Context, resp *http.Response, out *reply, pd worker) error {
	ct := resp.Header.Get("Content-Type")
	if kind, _, _ := mime.ParseMediaType(ct); kind == "text/event-stream" {
		return g.relayStream(ctx, resp, out, pd, ct)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err == nil && !json.Valid(body) && len(body) <= maxAnswerBytes {
		err = fmt.Errorf("an answer of %d bytes is not whole JSON", len(body))
	}
	if err != nil {
		return g.broken(ctx, pd, err)
	}
	if len(body) > maxAnswerBytes {
		return fmt.Errorf("%s: the answer is larger than %d bytes", pd.Seen.Name, maxAnswerBytes)
	}
	out.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	out.start(ct)
	return left(out.write(body))
}

// left says that a write failed because the client is not there to read.
func left(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: the client stopped reading: %v", context.Canceled, err)
}

// relayStream passes whole events on as they come and makes sure that the end is a real one: an end
// marker after a finish reason.
func (g *Gateway) relayStream(ctx context.Context, resp *http.Response, out *reply, pd worker, contentType string) error {
	events := openai.NewEventReader(resp.Body, openai.DefaultMaxEventBytes)
	finished, failed := false, false
	for {
		ev, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return g.broken(ctx, pd, errors.New("the answer ended before its end marker"))
		case err != nil:
			return g.broken(ctx, pd, err)
		case ev.Done && !finished && !failed:
			return g.broken(ctx, pd, errors.New("the answer ended without a finish reason"))
		}
		g.fleet.silence.alive(pd.URL)
		finished, failed = finished || ev.Finished, failed || ev.Failed
		if !out.started {
			out.start(contentType)
			out.stream = true
		}
		if err := out.write(ev.Raw); err != nil {
			return left(err)
		}
		if ev.Done && failed {
			return &toldError{fmt.Errorf("%s ended its answer with an error", pd.Seen.Name)}
		}
		if ev.Done {
			return nil
		}
	}
}
