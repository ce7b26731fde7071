// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"encoding/hex"
	"net/http"
	"strings"
)

// Headers of the W3C trace context.
const (
	HeaderParent = "Traceparent"
	HeaderState  = "Tracestate"
)

// maxState bounds a tracestate that is passed on; the standard asks for 512 bytes at least.
const maxState = 512

// Context is a place in a trace.
type Context struct {
	Trace [16]byte
	Span  [8]byte // under which what follows belongs
	Flags byte
	State string // of other vendors, passed on as it is
}

// sampled is the flag of traces that are recorded.
const sampled = 1

// Sampled says whether spans of the trace are wanted.
func (c Context) Sampled() bool { return c.Flags&sampled != 0 }

// Parent returns the value of HeaderParent.
func (c Context) Parent() string {
	b := make([]byte, 0, 55)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, c.Trace[:])
	b = hex.AppendEncode(append(b, '-'), c.Span[:])
	b = hex.AppendEncode(append(b, '-'), []byte{c.Flags})
	return string(b)
}

// Parse reads the context that a caller sent; ok is false if it sent none that makes sense.
func Parse(h http.Header) (c Context, ok bool) {
	v := h.Get(HeaderParent)
	// Later versions may go on behind the flags, and must be read as this one.
	if len(v) < 55 || len(v) > 55 && (v[:2] == "00" || v[55] != '-') || len(v) > 256 || v[2] != '-' || v[35] != '-' || v[52] != '-' {
		return c, false
	}
	var version, flags [1]byte
	for _, part := range []struct {
		into []byte
		text string
	}{{version[:], v[:2]}, {c.Trace[:], v[3:35]}, {c.Span[:], v[36:52]}, {flags[:], v[53:55]}} {
		if strings.ToLower(part.text) != part.text {
			return Context{}, false
		}
		if _, err := hex.Decode(part.into, []byte(part.text)); err != nil {
			return Context{}, false
		}
	}
	if version[0] == 0xff || c.Trace == [16]byte{} || c.Span == [8]byte{} {
		return Context{}, false
	}
	c.Flags = flags[0]
	if state := strings.Join(h.Values(HeaderState), ","); len(state) <= maxState && printable(state) {
		c.State = state
	}
	return c, true
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

type contextKey struct{}

// With returns ctx with a place in a trace.
func With(ctx context.Context, c Context) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// From returns the place in a trace that ctx is at; ok is false if there is none.
func From(ctx context.Context) (c Context, ok bool) {
	c, ok = ctx.Value(contextKey{}).(Context)
	return c, ok
}

// Pass sets the headers of a call to the place of its context; without one it sets none.
func Pass(r *http.Request) {
	c, ok := From(r.Context())
	if !ok {
		return
	}
	r.Header.Set(HeaderParent, c.Parent())
	if c.State != "" {
		r.Header.Set(HeaderState, c.State)
	}
}
