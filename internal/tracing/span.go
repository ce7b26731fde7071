// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync/atomic"
	"time"
)

// Kind is the side of a call that a span is on, by its number in OTLP.
type Kind int

// The kinds of spans.
const (
	Internal Kind = 1
	Server   Kind = 2
	Client   Kind = 3
)

// Span is a step of a request, between Start and End. A nil Span records nothing. It is used by one goroutine
// at a time.
type Span struct {
	t          *Tracer
	ended      atomic.Bool
	context    Context // of what happens in it
	parent     [8]byte
	name       string
	kind       Kind
	start, end time.Time
	attributes []any // names and values, in turns
	fault      string
}

// Serve begins the span of a request that r asks for. Without a Tracer, or for a trace that is not recorded, it
// only takes the context over.
func (t *Tracer) Serve(r *http.Request, name string) (context.Context, *Span) {
	c, ok := Parse(r.Header)
	switch {
	case ok:
		return t.Start(With(r.Context(), c), name, Server)
	case t == nil:
		return r.Context(), nil
	}
	c.Flags = sampled
	rand.Read(c.Trace[:])
	return t.Start(With(r.Context(), c), name, Server)
}

// Start begins a step; calls that are made in the context that it returns belong under it. Without a Tracer, or
// outside of a trace that is recorded, the context stays as it is.
func (t *Tracer) Start(ctx context.Context, name string, kind Kind) (context.Context, *Span) {
	c, ok := From(ctx)
	if t == nil || !ok || !c.Sampled() {
		return ctx, nil
	}
	s := &Span{t: t, context: c, parent: c.Span, name: name, kind: kind, start: time.Now()}
	rand.Read(s.context.Span[:])
	return With(ctx, s.context), s
}

// Set notes attributes, names and values in turns. A value is a string, an int, an int64, a float64 or a bool.
func (s *Span) Set(attributes ...any) {
	if s != nil {
		s.attributes = append(s.attributes, attributes...)
	}
}

// Fail notes why the step failed, in words that may be shown to whoever sees traces; "" is no failure.
func (s *Span) Fail(why string) {
	if s != nil {
		s.fault = why
	}
}

// End ends the step. A second call does nothing.
func (s *Span) End() {
	if s == nil || s.ended.Swap(true) {
		return
	}
	s.end = time.Now()
	s.t.put(s)
}

// EndWith is End after Fail with err, if there is one.
func (s *Span) EndWith(err error) {
	if s != nil && err != nil {
		s.fault = err.Error()
	}
	s.End()
}
