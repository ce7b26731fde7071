// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"afterimage/internal/openai"
)

// Fleet returns mux behind the token of a fleet: whoever calls a worker has to show one of tokens, everywhere but at
// the open routes. Without tokens it lets everybody through. In both cases calls end when their sender waits no
// longer.
func Fleet(mux *http.ServeMux, tokens []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(tokens) > 0 {
			if _, pattern := mux.Handler(r); routeOf(pattern).Access != Open && !shows(r, tokens) {
				refuse(w, unauthorized("This worker takes calls with the token of its fleet only (fleet.token)."))
				return
			}
		}
		ctx, cancel, err := WithTimeout(r)
		if err != nil {
			openai.WriteError(w, err)
			return
		}
		defer cancel()
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
}

// shows says whether r carries one of tokens. It takes the same time whichever it is.
func shows(r *http.Request, tokens []string) bool {
	given := r.Header["Authorization"]
	if len(given) != 1 {
		return false
	}
	text, bearer := strings.CutPrefix(given[0], bearerPrefix)
	sum, ok := sha256.Sum256([]byte(text)), 0
	for _, t := range tokens {
		want := sha256.Sum256([]byte(t))
		ok |= subtle.ConstantTimeCompare(sum[:], want[:])
	}
	return bearer && ok == 1
}

const bearerPrefix = "Bearer "

// WithToken has every call of c carry the token of a fleet; "" changes nothing.
func WithToken(c *http.Client, token string) *http.Client {
	if token == "" {
		return c
	}
	own := *c
	own.Transport = &bearer{next: c.Transport, value: []string{bearerPrefix + token}}
	return &own
}

// bearer adds a token to calls.
type bearer struct {
	next  http.RoundTripper
	value []string
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	own := *r
	own.Header = r.Header.Clone() // a RoundTripper changes no request
	if own.Header == nil {
		own.Header = http.Header{}
	}
	own.Header["Authorization"] = b.value
	return b.next.RoundTrip(&own)
}

// CloseIdleConnections is called by http.Client.
func (b *bearer) CloseIdleConnections() {
	if c, ok := b.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
