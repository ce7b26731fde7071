// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"afterimage/internal/openai"
	"afterimage/internal/proxy"
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
	shaped bool // the answer was an error in OpenAI's shape, hence written by one of ours
}

func (e *workerError) Error() string {
	return fmt.Sprintf("%s answered %d: %s", e.worker, e.status, e.body.Message)
}

// final says whether the answer would be the same from any other worker: the caller's own fault. What
// is not in OpenAI's shape was not written about the caller's request.
func (e *workerError) final() bool {
	switch e.status {
	case http.StatusConflict, http.StatusTooManyRequests, http.StatusUnprocessableEntity, proxy.StatusLeft:
		return false
	}
	return e.shaped && e.status >= 400 && e.status < 500
}

// forClient is the worker's answer as its client sees it: status and words are passed on.
func (e *workerError) forClient() error {
	if !e.shaped || e.status == proxy.StatusLeft {
		return openai.Unavailable(retryAfter, "%v", e)
	}
	own := e.body
	if own.Status == http.StatusTooManyRequests || own.Status == http.StatusServiceUnavailable {
		own.RetryAfter = retryAfter
	}
	return &own
}

// nonsense is an answer of w that has the status of success and cannot be used.
func nonsense(w worker, format string, args ...any) error {
	return &refusedError{url: w.URL, err: openai.Unavailable(retryAfter, "%s %s", w.Seen.Name, fmt.Sprintf(format, args...))}
}

// maxExcerpt bounds what is shown of an answer that makes no sense.
const maxExcerpt = 200

// answered turns a worker's answer into an error.
func answered(w worker, status int, body []byte) error {
	e := &workerError{worker: w.Seen.Name, status: status}
	var shape struct {
		Error struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Param   *string `json:"param"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &shape) == nil && shape.Error.Message != "" && status >= 400 {
		e.shaped = true
		e.body = openai.Error{Status: status, Message: openai.Bounded(shape.Error.Message), Type: shape.Error.Type}
		if shape.Error.Param != nil {
			e.body.Param = *shape.Error.Param
		}
		return e
	}
	e.body.Message = strings.ToValidUTF8(string(body[:min(len(body), maxExcerpt)]), "?")
	return e
}

// broken reports a call that failed on its way and has the worker probed, unless it was this side that
// ended it: then the reason for that is the error. A deadline is always that of the call, since
// requests of clients have none.
func (g *Gateway) broken(ctx context.Context, w worker, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		err = errors.New("no answer within the time given")
	case cause == errSilent: // of this very call: another's is wrapped by what it ended
		err = fmt.Errorf("it %v for %v", errSilent, g.cfg.SilenceLimit)
	case cause != nil:
		return cause
	default:
		err = proxy.Plain(err)
	}
	g.fleet.suspect(w.URL, err.Error())
	g.outliers.failed(w)
	return &brokenError{worker: w.Seen.Name, url: w.URL, err: err}
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
		return proxy.Redact(own)
	case errors.As(err, &answer):
		return proxy.Redact(openai.AsError(answer.forClient()))
	case errors.As(err, &broken), errors.Is(err, context.DeadlineExceeded):
		return proxy.Redact(openai.Unavailable(retryAfter, "%v", err))
	}
	return err
}

// told is the text of err that its client saw.
func told(err error) string {
	if errors.Is(err, context.Canceled) {
		return "the client left"
	}
	return openai.AsError(clientError(err)).Message
}
