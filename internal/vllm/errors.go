// SPDX-License-Identifier: Apache-2.0

package vllm

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

// stage is a part of a request's way, as it is called in logs and counters.
type stage string

const (
	stageEncode  stage = "encode"
	stagePrefill stage = "prefill"
	stageDecode  stage = "decode"
)

// callError is a call to a worker that did not end well.
type callError struct {
	stage  stage
	url    string
	status int          // 0: the call did not come to an answer
	own    openai.Error // with a status: what the worker said, in the API's shape
	err    error        // without: why not
	begun  bool         // without: the answer had begun
}

func (e *callError) Error() string {
	switch {
	case e.begun:
		return fmt.Sprintf("the %s worker broke off its answer: %v", e.stage, e.err)
	case e.status == 0:
		return fmt.Sprintf("the %s worker did not answer: %v", e.stage, e.err)
	}
	return fmt.Sprintf("the %s worker answered %d: %s", e.stage, e.status, e.own.Message)
}

func (e *callError) Unwrap() error { return e.err }

// elsewhere says whether another worker may do better. What a worker says of the request is final.
func (e *callError) elsewhere() bool {
	return e.status == 0 || e.status >= 500 || e.status == http.StatusTooManyRequests || e.status == http.StatusRequestTimeout
}

// retryAfter is what a client is told to wait for a worker that is missing or busy.
const retryAfter = time.Second

// forClient is the error as the client sees it: status and words of the worker, in the API's shape.
func (e *callError) forClient() *openai.Error {
	if e.status == 0 {
		return &openai.Error{Status: http.StatusBadGateway, Type: typeBadGateway, Message: e.Error()}
	}
	own := e.own
	if own.Status == http.StatusTooManyRequests || own.Status == http.StatusServiceUnavailable {
		own.RetryAfter = retryAfter
	}
	return &own
}

// typeBadGateway is the type of errors about workers that could not be understood or reached.
const typeBadGateway = "BadGatewayError"

func badGateway(format string, args ...any) *openai.Error {
	return &openai.Error{Status: http.StatusBadGateway, Type: typeBadGateway, Message: fmt.Sprintf(format, args...)}
}

// maxExcerpt bounds what is shown of an answer in no known shape.
const maxExcerpt = 400

// refusal turns a worker's answer into an error.
func refusal(s stage, url string, status int, body []byte) *callError {
	e := &callError{stage: s, url: url, status: status}
	if status < 400 || status > 599 {
		e.own = *badGateway("The %s worker answered %d, which is no answer to a chat request.", s, status)
		return e
	}
	var shape struct {
		Error struct {
			Message string          `json:"message"`
			Type    string          `json:"type"`
			Param   *string         `json:"param"`
			Code    json.RawMessage `json:"code"`
		} `json:"error"`
		Detail json.RawMessage `json:"detail"`
	}
	_ = json.Unmarshal(body, &shape) // what is in another shape is shown as it is
	switch {
	case shape.Error.Message != "":
		e.own = openai.Error{Status: status, Message: openai.Bounded(shape.Error.Message), Type: shape.Error.Type}
		if shape.Error.Param != nil {
			e.own.Param = *shape.Error.Param
		}
		return e
	case len(shape.Detail) > 0:
		body = shape.Detail
		var text string
		if json.Unmarshal(shape.Detail, &text) == nil {
			body = []byte(text)
		}
	}
	excerpt := strings.ToValidUTF8(string(body[:min(len(body), maxExcerpt)]), "?")
	e.own = openai.Error{Status: status, Type: typeOf(status), Message: fmt.Sprintf("The %s worker answered %d: %s", s, status, excerpt)}
	return e
}

// typeOf returns the type of an error that a worker gave none.
func typeOf(status int) string {
	switch {
	case status == http.StatusNotFound:
		return openai.TypeNotFound
	case status == http.StatusTooManyRequests:
		return openai.TypeRateLimit
	case status == http.StatusServiceUnavailable:
		return openai.TypeUnavailable
	case status >= 500:
		return openai.TypeInternal
	}
	return openai.TypeBadRequest
}

// missing is the answer while a role has no instance.
func missing(role Role) error {
	return openai.Unavailable(retryAfter, "No %s instance is registered", role)
}

// clientError turns what ended a request into what its client sees.
func clientError(err error) error {
	var own *openai.Error
	var call *callError
	switch {
	case errors.As(err, &own):
		return proxy.Redact(own)
	case errors.As(err, &call):
		return proxy.Redact(call.forClient())
	}
	return err
}

// callBroken says why a call did not come to an answer, or returns what ended it on this side.
func callBroken(ctx context.Context, s stage, url string, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errSilent):
		err = errSilent
	case cause != nil:
		return cause
	default:
		err = proxy.Plain(err)
	}
	return &callError{stage: s, url: url, err: err}
}
