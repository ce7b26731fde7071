// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"afterimage/internal/proxy"
	"afterimage/internal/tracing"
)

// maxAnswer bounds the answers that are read here: those of Encoders and prefill workers, and errors.
const maxAnswer = 8 << 20

// errand is a call to be made.
type errand struct {
	stage  stage
	to     *entry
	path   string // of the API; "" is that of chats, which Encoders have too
	id     string // X-Request-Id
	rank   int    // data-parallel replica to run on; -1 leaves it to the worker
	body   proxy.Pieces
	memory *proxy.Buffer // what body lies in
}

// send makes the call and returns its answer once the header is there. The caller ends the call after it has
// read the answer; after an error there is nothing to end.
func (f *Front) send(ctx context.Context, e errand) (*http.Response, *call, error) {
	ctx, c := f.reg.begin(ctx, e.to)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.to.URL+cmp.Or(e.path, pathChat), e.body.Body(e.memory))
	if err != nil {
		c.end(unsaid)
		return nil, nil, err
	}
	req.ContentLength = e.body.Size()
	// For a connection that turns out to be closed before anything was sent on it.
	req.GetBody = func() (io.ReadCloser, error) { return e.body.Body(e.memory), nil }
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", e.id)
	if e.rank >= 0 {
		req.Header.Set("X-Data-Parallel-Rank", strconv.Itoa(e.rank))
	}
	tracing.Pass(req)
	resp, err := f.client.Do(req)
	if err != nil {
		err = callBroken(ctx, e.stage, e.to.URL, err)
		c.end(saidBy(err))
		return nil, nil, err
	}
	c.alive()
	return resp, c, nil
}

// exchange makes the call and reads its whole answer, which is an error unless its status is 200.
func (f *Front) exchange(ctx context.Context, e errand) (body []byte, err error) {
	ctx, span := f.cfg.Tracer.Start(ctx, string(e.stage), tracing.Client)
	span.Set("worker", e.to.URL)
	defer func() { span.EndWith(err) }()
	resp, c, err := f.send(ctx, e)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err = read(ctx, resp, e)
	c.end(saidBy(err))
	return body, err
}

// read reads a whole answer.
func read(ctx context.Context, resp *http.Response, e errand) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, callBroken(ctx, e.stage, e.to.URL, err)
	case len(body) > maxAnswer:
		return nil, &callError{stage: e.stage, url: e.to.URL, err: errors.New("the answer is too large")}
	case resp.StatusCode != http.StatusOK:
		return nil, refusal(e.stage, e.to.URL, resp.StatusCode, body)
	}
	return body, nil
}

// saidBy returns what an error says of the instance.
func saidBy(err error) outcome {
	var c *callError
	switch {
	case err == nil:
		return worked
	case !errors.As(err, &c):
		return unsaid
	case c.status == 0:
		return broke
	case c.status >= 500:
		return failed
	}
	return worked
}
