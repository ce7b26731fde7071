// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"afterimage/internal/openai"
)

// HeaderTimeout is how long whoever sends a request waits for its whole answer. Gateways take it from clients
// and tell workers what is left of it.
const HeaderTimeout = "X-Request-Timeout"

// maxTimeout is the longest that makes sense to ask for.
const maxTimeout = 24 * time.Hour

// parseTimeout reads a number of seconds, or a number with a unit: 30, 2.5, 500ms, 1m30s.
func parseTimeout(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if seconds, bad := strconv.ParseFloat(text, 64); bad == nil && !strings.ContainsAny(text, "xXpP_") {
		d, err = maxTimeout+1, nil
		if seconds <= maxTimeout.Seconds() {
			d = time.Duration(math.Round(seconds * float64(time.Second)))
		}
		if math.IsNaN(seconds) {
			d = 0
		}
	}
	if err != nil || d <= 0 || d > maxTimeout {
		return 0, openai.BadRequest(HeaderTimeout, "%s: %.40q is no time to wait; give seconds, or a number with a unit, e.g. 30, 2.5 or 500ms, up to 24h", HeaderTimeout, text)
	}
	return d, nil
}

// WithTimeout returns the context of a request that ends when its client waits no longer, with an *openai.Error of
// status 504 as the cause. Without the header it is that of the request.
func WithTimeout(r *http.Request) (context.Context, context.CancelFunc, error) {
	given := r.Header[HeaderTimeout]
	if len(given) == 0 {
		return r.Context(), func() {}, nil
	}
	if len(given) > 1 {
		return nil, nil, openai.BadRequest(HeaderTimeout, "%s is given %d times; give it once", HeaderTimeout, len(given))
	}
	d, err := parseTimeout(strings.TrimSpace(given[0]))
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), d, &openai.Error{
		Status: http.StatusGatewayTimeout, Type: openai.TypeTimeout,
		Message: fmt.Sprintf("The request took longer than the %v that its %s allows.", d, HeaderTimeout),
	})
	return ctx, cancel, nil
}

// TellTimeout has a call to a worker say how long its context has left. Where it has no end, nothing is said.
func TellTimeout(call *http.Request) {
	if end, ok := call.Context().Deadline(); ok {
		left := max(time.Until(end), time.Millisecond)
		call.Header.Set(HeaderTimeout, strconv.FormatInt(left.Milliseconds(), 10)+"ms")
	}
}
