// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"
)

// The types of errors that clients see. TypeValidation is what vLLM calls faults in the form of a
// body, against TypeBadRequest for faults in what it says.
const (
	TypeBadRequest  = "BadRequestError"
	TypeValidation  = "Bad Request"
	TypeNotFound    = "NotFoundError"
	TypeTooLarge    = "RequestEntityTooLargeError"
	TypeRateLimit   = "RateLimitError"
	TypeInternal    = "InternalServerError"
	TypeUnavailable = "ServiceUnavailableError"
	TypeTimeout     = "GatewayTimeoutError"
)

// Error is a failure that a client is to see.
type Error struct {
	Status  int    // HTTP status
	Message string // names the part, the value, the limit
	Type    string // one of the Type constants
	Param   string // field or JSON path at fault; "" is sent as null
	Code    int    // 0 stands for Status
	Name    string // sent in the place of Code where OpenAI's API has a word, e.g. "invalid_api_key"; "" sends Code
	// RetryAfter is sent in whole seconds, rounded up; 0 sends none.
	RetryAfter time.Duration
}

// Error returns the message; the status and the type are for the wire.
func (e *Error) Error() string { return e.Message }

// BadRequest returns a 400. param may be "".
func BadRequest(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Type: TypeBadRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// badParam is BadRequest with the parameter named in the message as vLLM does.
func badParam(param, format string, args ...any) *Error {
	e := BadRequest(param, format, args...)
	e.Message += " (parameter=" + param + ")"
	return e
}

// badValue is badParam with the value as Python would print it.
func badValue(param, value, format string, args ...any) *Error {
	e := BadRequest(param, format, args...)
	e.Message += " (parameter=" + param + ", value=" + value + ")"
	return e
}

// ModelNotFound returns the 404 for a model that is not served here.
func ModelNotFound(asked, served string) *Error {
	return &Error{
		Status: http.StatusNotFound, Type: TypeNotFound, Param: "model",
		Message: fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", Shorten(asked), served),
	}
}

// TooLarge returns the 413 for a body of more than limit bytes.
func TooLarge(limit int64) *Error {
	return &Error{
		Status: http.StatusRequestEntityTooLarge, Type: TypeTooLarge,
		Message: fmt.Sprintf("The request body exceeds the limit of %d bytes.", limit),
	}
}

// CacheMiss returns the 400 for the image at index (in prompt order) that has a uuid only, when
// nothing is held under it.
func CacheMiss(index int) *Error {
	return BadRequest("", "Cache miss for image at index %d but data is not provided.", index)
}

// PromptTooLong returns the 400 for a prompt of promptTokens positions, images included, that leaves
// no room for an answer in a context of contextTokens.
func PromptTooLong(contextTokens, promptTokens int) *Error {
	return badValue("input_tokens", strconv.Itoa(promptTokens), "This model's maximum context length is %d tokens. "+
		"However, your prompt contains at least %d input tokens, which exceeds this limit even without any output tokens. "+
		"Please reduce the length of the input prompt.", contextTokens, promptTokens)
}

// MaxTokensTooLarge returns the 400 for a max_tokens that no context of contextTokens can hold.
func MaxTokensTooLarge(maxTokens, contextTokens int) *Error {
	return badValue("max_tokens", strconv.Itoa(maxTokens),
		"max_tokens=%d cannot be greater than max_model_len=%d. Please request fewer output tokens.", maxTokens, contextTokens)
}

// Unavailable returns a 503 that asks the client to come back after retry.
func Unavailable(retry time.Duration, format string, args ...any) *Error {
	return &Error{
		Status: http.StatusServiceUnavailable, Type: TypeUnavailable, RetryAfter: retry,
		Message: fmt.Sprintf(format, args...),
	}
}

// TooManyRequests returns a 429 that tells the client when to try again.
func TooManyRequests(retry time.Duration, format string, args ...any) *Error {
	return &Error{
		Status: http.StatusTooManyRequests, Type: TypeRateLimit, RetryAfter: retry,
		Message: fmt.Sprintf(format, args...),
	}
}

// Internal returns a 500.
func Internal(format string, args ...any) *Error {
	return &Error{Status: http.StatusInternalServerError, Type: TypeInternal, Message: fmt.Sprintf(format, args...)}
}

// AsError finds the Error in err. A body over its limit (http.MaxBytesError) is a 413, a passed
// deadline a 504; any other error is a 500 that does not tell what it was, because its text was not
// written for clients: log it before.
func AsError(err error) *Error {
	var e *Error
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &tooLarge):
		return TooLarge(tooLarge.Limit)
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Status: http.StatusGatewayTimeout, Type: TypeTimeout, Message: "The request took longer than its time limit."}
	}
	return Internal("Internal server error")
}

// maxMessage and maxParam bound what an error says, in bytes: clients' own words, and workers', are in it.
const (
	maxMessage = 4 << 10
	maxParam   = 256
)

// Bounded returns a message as long as one may be: what a worker has said may hold a client's whole body.
func Bounded(message string) string { return bounded(message, maxMessage) }

// bounded cuts s to n bytes, at a character, and says how much it left out.
func bounded(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return fmt.Sprintf("%s... (%d bytes more)", s[:n], len(s)-n)
}

// AppendJSON appends the body {"error":{...}}, with long words cut.
func (e *Error) AppendJSON(dst []byte) []byte {
	code := e.Code
	if code == 0 {
		code = e.Status
	}
	dst = append(dst, `{"error":{"message":`...)
	dst = AppendString(dst, Bounded(e.Message))
	dst = append(dst, `,"type":`...)
	dst = AppendString(dst, e.Type)
	dst = append(dst, `,"param":`...)
	dst = appendStringOrNull(dst, bounded(e.Param, maxParam))
	dst = append(dst, `,"code":`...)
	if e.Name != "" {
		return append(AppendString(dst, e.Name), "}}"...)
	}
	dst = strconv.AppendInt(dst, int64(code), 10)
	return append(dst, "}}"...)
}

// WriteError writes err (see AsError) as a whole response. Nothing may have been written to w.
func WriteError(w http.ResponseWriter, err error) {
	e := AsError(err)
	if e.RetryAfter > 0 {
		seconds := (e.RetryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	writeJSON(w, e.Status, e.AppendJSON(nil))
}

// NotFound writes the 404 of a route that does not exist, in FastAPI's shape.
func NotFound(w http.ResponseWriter) {
	writeJSON(w, http.StatusNotFound, []byte(`{"detail":"Not Found"}`))
}

// MethodNotAllowed writes the 405 of a route that exists for other methods, e.g. "GET, HEAD".
func MethodNotAllowed(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	writeJSON(w, http.StatusMethodNotAllowed, []byte(`{"detail":"Method Not Allowed"}`))
}

// writeJSON writes a whole response. A client that has gone is no concern of the caller's.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
