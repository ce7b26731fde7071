// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// judge checks the whole answer to a Get before anybody looks at one item of it.
func (g *Guard) judge(wants []Want, gots []Got) []Got {
	if err := checkAnswer(wants, gots); err != nil {
		return g.condemn(wants, gots, err)
	}
	for i := range gots {
		if !errors.Is(gots[i].Err, ErrUnconfirmed) {
			continue
		}
		if g.cfg.OnUnconfirmed == Exit {
			return g.condemn(wants, gots, gots[i].Err)
		}
		if errors.Is(gots[i].Err, ErrHeld) {
			g.counted()
			continue
		}
		_ = g.unconfirmed(gots[i].Err, []embedding.Key{wants[i].Key}, nil, int64(wants[i].Bytes))
	}
	g.noteAll(gots)
	return gots
}

// checkAnswer says what makes an answer impossible to understand.
func checkAnswer(wants []Want, gots []Got) error {
	if len(gots) != len(wants) {
		return fmt.Errorf("%w: %d answers to %d keys", ErrUnconfirmed, len(gots), len(wants))
	}
	for i, got := range gots {
		var what string
		switch w := wants[i]; {
		case got.Buf == nil && got.Err == nil:
			what = "neither object nor error"
		case got.Buf != nil && got.Err != nil:
			what = "both object and error"
		case got.Err != nil && !Classified(got.Err):
			what = got.Err.Error()
		case got.Buf != nil && got.Buf.Len() > w.Bytes:
			what = fmt.Sprintf("%d bytes where %d were asked for", got.Buf.Len(), w.Bytes)
		case got.Buf != nil && shared(wants, gots, i):
			what = "the memory of another item"
		default:
			continue
		}
		return fmt.Errorf("%w: answer %d of %d, key %s: %s", ErrUnconfirmed, i+1, len(gots), wants[i].Key, what)
	}
	return nil
}

// shared says whether an item before i, of another key, has the same Buf.
func shared(wants []Want, gots []Got, i int) bool {
	for j := range i {
		if gots[j].Buf == gots[i].Buf && wants[j].Key != wants[i].Key {
			return true
		}
	}
	return false
}

// condemn quarantines all that came with an answer and answers every item with cause.
func (g *Guard) condemn(wants []Want, gots []Got, cause error) []Got {
	keys, bytes := make([]embedding.Key, len(wants)), int64(0)
	for i, w := range wants {
		keys[i] = w.Key
		bytes += int64(w.Bytes)
	}
	var bufs []*arena.Buf
	for _, got := range gots {
		// A Buf that came twice is kept once: nobody knows how many references it was given.
		if got.Buf != nil && !slices.Contains(bufs, got.Buf) {
			bufs = append(bufs, got.Buf)
		}
	}
	return failed(len(wants), g.unconfirmed(cause, keys, bufs, bytes))
}

// unconfirmed gives up keys and memory, of which bufs are references to keep, and returns the error
// for the caller.
func (g *Guard) unconfirmed(cause error, keys []embedding.Key, bufs []*arena.Buf, bytes int64) error {
	g.mu.Lock()
	g.count++
	for _, b := range bufs {
		g.keepLocked(b, cause)
	}
	g.lost += bytes
	for _, k := range keys {
		g.distrust[k] = true
	}
	g.distrusts.Store(int64(len(g.distrust)))
	lost, distrusted := g.lost, len(g.distrust)
	g.poisoned = g.poisoned || g.cfg.OnUnconfirmed == Exit
	g.mu.Unlock()

	g.cfg.Logger.Warn("store: completion unconfirmed, memory in quarantine",
		"keys", len(keys), "bytes", bytes, "quarantined", lost, "error", cause)
	switch {
	case g.cfg.OnUnconfirmed == Exit:
		err := fmt.Errorf("%w: retaining read buffer: %w", ErrMustExit, cause)
		g.poison()
		g.fatal(err)
		return err
	case lost > g.limit():
		g.closeForGood(fmt.Sprintf("%d bytes of the arena are in quarantine, limit %d", lost, g.limit()))
	case distrusted > maxDistrusted:
		g.closeForGood(fmt.Sprintf("%d keys are distrusted, limit %d", distrusted, maxDistrusted))
	}
	return cause
}

// counted counts an unconfirmed completion of which the Store takes care.
func (g *Guard) counted() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count++
}

// keepLocked takes over a reference and keeps its memory from use.
func (g *Guard) keepLocked(b *arena.Buf, cause error) {
	switch {
	case b.Foreign():
		b.Release()
	case b.In(g.cfg.Arena):
		g.tokens = append(g.tokens, b.Quarantine(cause.Error()))
	default:
		g.held = append(g.held, b)
	}
}

// limit is how many bytes may be in quarantine.
func (g *Guard) limit() int64 {
	if g.cfg.Arena == nil {
		return math.MaxInt64
	}
	return g.cfg.Arena.Stats().Capacity / 4
}

// poison ends all use of the Store.
func (g *Guard) poison() {
	err := fmt.Errorf("%w: %w", ErrMustExit, ErrUnconfirmed)
	g.shut.CompareAndSwap(nil, &err)
}

// fatal tells the worker to exit.
func (g *Guard) fatal(err error) {
	g.mu.Lock()
	f := g.cfg.Fatal
	g.cfg.Fatal = nil
	g.mu.Unlock()
	if f != nil {
		f(err)
	}
}

// closeForGood stops all calls. The worker goes on without a Store until it is restarted.
func (g *Guard) closeForGood(reason string) {
	err := fmt.Errorf("%w: closed for good: %s", ErrUnavailable, reason)
	if !g.shut.CompareAndSwap(nil, &err) {
		return
	}
	g.cfg.Logger.Error("store: client closed for good; restart this worker", "reason", reason)
	if g.cfg.Unready != nil {
		g.cfg.Unready("store client closed for good: " + reason)
	}
}

// GuardStats is a snapshot of a Guard.
type GuardStats struct {
	Unconfirmed uint64 // completions, since the start
	Quarantined int64  // bytes
	Limit       int64  // most bytes of that; beyond it the Guard closes for good
	Distrusted  int    // keys
	Shut        bool   // no calls are made any more
}

// Stats returns the state at this moment.
func (g *Guard) Stats() GuardStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return GuardStats{Unconfirmed: g.count, Quarantined: g.lost, Limit: g.limit(), Distrusted: len(g.distrust), Shut: g.shut.Load() != nil}
}
