// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"afterimage/internal/store"
)

// limitedLog writes at most one line per outcome and period; the next line says how many it stands for.
type limitedLog struct {
	to    *slog.Logger
	every time.Duration

	mu      sync.Mutex // guards the fields below
	lines   map[Outcome]*line
	failing bool
}

type line struct {
	next  time.Time // no line before
	count int       // events since the last line
}

// drop logs a publication that came to nothing. Outcomes that belong to good order are not logged, and those of
// which the Store tells itself only for those who look into one.
func (l *limitedLog) drop(o Outcome, err error) {
	switch o {
	case NoStore, Closed, Duplicate, FirstSighting:
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if store.Told(err) {
		l.to.Debug("publish: an embedding stays local", "reason", o, "error", err)
		return
	}
	if o == Rejected {
		l.failing = true
	}
	n := l.due(o)
	if n == 0 {
		return
	}
	level := slog.LevelWarn
	if o == Empty || o == NotFinite || o == Malformed {
		level = slog.LevelError // a fault of this process, not of the Store
	}
	l.to.Log(context.Background(), level, "publish: embeddings stay local", "reason", o, "dropped", n, "error", err)
}

// well notes that the Store took something.
func (l *limitedLog) well() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failing && l.due(Stored) > 0 {
		l.failing = false
		l.to.Info("publish: Store takes embeddings again")
	}
}

// due counts one event of o and returns how many a line stands for, 0 if it is too early for one. l.mu
// is held.
func (l *limitedLog) due(o Outcome) (n int) {
	d := l.lines[o]
	if d == nil {
		if l.lines == nil {
			l.lines = map[Outcome]*line{}
		}
		d = &line{}
		l.lines[o] = d
	}
	d.count++
	now := time.Now()
	if now.Before(d.next) {
		return 0
	}
	n = d.count
	d.next, d.count = now.Add(l.every), 0
	return n
}
