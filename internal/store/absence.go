// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Told says whether a fault of the Store is told of by the Store or its Guard, so that whoever meets it need not.
func Told(err error) bool { return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnconfirmed) }

// calm is how long a Store has to be back for its next absence to be told of: one that is slow comes and goes.
const calm = 10 * time.Second

// absence tells of a Store that is away: one line when that begins, one when it ends.
type absence struct {
	away atomic.Bool // as the last call found it

	mu    sync.Mutex // guards the fields below
	told  bool
	ended time.Time
}

// note takes the outcome of a call in. What the caller's end, or the Guard, brought about says nothing.
func (g *Guard) note(err error) {
	gone := errors.Is(err, ErrUnavailable)
	if gone && errors.Is(err, context.Canceled) || errors.Is(err, ErrUnconfirmed) || errors.Is(err, ErrDistrusted) {
		return
	}
	a := &g.absence
	if !gone && !a.away.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.away.Swap(gone)
	switch {
	case g.cfg.Store.Capabilities().Tells:
	case gone && !a.told && time.Since(a.ended) > calm:
		a.told = true
		g.cfg.Logger.Warn("store: the Store is away; encoding instead", "error", err)
	case !gone && was:
		a.ended = time.Now()
		if a.told {
			a.told = false
			g.cfg.Logger.Info("store: the Store is back")
		}
	}
}

// noteAll takes the outcome of a Get in: one item that the Store could not be asked for is enough.
func (g *Guard) noteAll(gots []Got) {
	var first error
	for i := range gots {
		if errors.Is(gots[i].Err, ErrUnavailable) {
			g.note(gots[i].Err)
			return
		}
		if i == 0 {
			first = gots[i].Err
		}
	}
	g.note(first)
}
