// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errSilent: a worker holds a call and has given no sign of life for too long. A frozen process keeps
// its connections open, so nothing else would ever end the call.
var errSilent = errors.New("gave no sign of life")

// silence cuts the calls to workers that have gone silent. A sign of life is any answer to a probe, also
// that it is not ready, and any event of an answer: a worker that is too busy for probes and still
// decodes is not silent.
type silence struct {
	limit time.Duration // 0: calls are never cut

	mu    sync.Mutex // guards lines
	lines map[string]*lifeline
}

// lifeline is what hangs on the life of one worker.
type lifeline struct {
	seen  time.Time // of the latest sign
	calls map[*context.CancelCauseFunc]struct{}
}

func newSilence(limit time.Duration) *silence {
	return &silence{limit: limit, lines: map[string]*lifeline{}}
}

// line returns the lifeline of the worker at url, which counts as seen when it is first asked for. The
// caller holds mu.
func (s *silence) line(url string) *lifeline {
	l := s.lines[url]
	if l == nil {
		l = &lifeline{seen: time.Now(), calls: map[*context.CancelCauseFunc]struct{}{}}
		s.lines[url] = l
	}
	return l
}

// call returns the context of a call to the worker at url; it ends with cause errSilent when the worker
// goes silent. done must be called when the call has ended.
func (s *silence) call(ctx context.Context, url string) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line(url).calls[&cancel] = struct{}{}
	return ctx, func() {
		s.mu.Lock()
		delete(s.lines[url].calls, &cancel)
		s.mu.Unlock()
		cancel(nil)
	}
}

// alive notes a sign of life.
func (s *silence) alive(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line(url).seen = time.Now()
}

// unheard notes that a probe failed, and cuts the worker's calls when the latest sign is too old.
func (s *silence) unheard(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.line(url)
	if s.limit <= 0 || time.Since(l.seen) < s.limit {
		return
	}
	for cancel := range l.calls {
		(*cancel)(errSilent)
	}
}
