// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"afterimage/internal/openai"
)

// brokenError: the call to a worker did not come to an answer. Another attempt may succeed.
type brokenError struct {
	worker string
	url    string
	err    error
}

func (e *brokenError) Error() string { return fmt.Sprintf("%s: %v", e.worker, e.err) }
func (e *brokenError) Unwrap() error { return e.err }

// workerError is a worker's own answer that is not 200.
type workerError struct {
	worker string
	status int
	body   openai.Error
	raw    []byte // as it came, for relaying
}

func (e *workerError) Error() string {
	return fmt.Sprintf("%s answered %d: %s", e.worker, e.status, e.body.Message)
}

// final says whether the answer would be the same from any other worker: the caller's own fault.
func (e *workerError) final() bool {
	return e.status >= 400 && e.status < 500 && e.status != http.StatusConflict &&
		e.status != http.StatusTooManyRequests && e.status != http.StatusUnprocessableEntity && e.status != 499
}

// answered turns a worker's answer into an error.
func answered(w worker, status int, body []byte) error {
	e := &workerError{worker: w.Seen.Name, status: status, raw: body}
	var shape struct {
		Error struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Param   *string `json:"param"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &shape) == nil && shape.Error.Message != "" {
		e.body = openai.Error{Status: status, Message: shape.Error.Message, Type: shape.Error.Type}
		if shape.Error.Param != nil {
			e.body.Param = *shape.Error.Param
		}
		return e
	}
	e.body = openai.Error{Status: status, Message: fmt.Sprintf("%s answered %d", w.Seen.Name, status), Type: http.StatusText(status)}
	return e
}

// broken reports a call that failed on its way and has the worker probed, unless it was our own side
// that ended it.
func (g *Gateway) broken(ctx context.Context, w worker, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err = plainError(err)
	g.fleet.suspect(w.URL, err.Error())
	return &brokenError{worker: w.Seen.Name, url: w.URL, err: err}
}

// plainError drops the method and URL that net/http puts in front of every error.
func plainError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("cannot connect: %w", op.Err)
	}
	return err
}

// retryAfter is what a client is told to wait for a worker that is missing or busy: about the time in
// which a supervised worker is back.
const retryAfter = time.Second

// clientError turns what ended a request into what its client sees.
func clientError(err error) error {
	var own *openai.Error
	var answer *workerError
	var broken *brokenError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &answer) && answer.status == http.StatusTooManyRequests:
		e := answer.body
		return &e
	case errors.As(err, &answer) && answer.final():
		e := answer.body
		return &e
	case errors.As(err, &answer), errors.As(err, &broken):
		return openai.Unavailable(retryAfter, "%v", err)
	case errors.Is(err, context.DeadlineExceeded):
		return openai.Unavailable(retryAfter, "a worker did not answer in time: %v", err)
	}
	return err
}
