// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// OnUnconfirmed says what a Guard does about an unconfirmed completion.
type OnUnconfirmed string

const (
	// Drain gives up the range and the key, and goes on. The default.
	Drain OnUnconfirmed = "drain"
	// Exit poisons the Store client: every later call fails and the worker has to exit.
	Exit OnUnconfirmed = "exit"
)

// GuardConfig sets up a Guard. Zero values mean the default, which each field names.
type GuardConfig struct {
	Store         Store         // required; owned by the Guard
	OnUnconfirmed OnUnconfirmed // Drain
	// Arena is what calls read into and write from. When more than a quarter of it is in quarantine, the
	// Guard closes for good; nil is no limit.
	Arena *arena.Arena
	// Unready is called once when the Guard closes for good, with a reason for people; nil is nobody.
	Unready func(reason string)
	// Fatal is called once under Exit, with the error that the worker has to end with; nil is nobody.
	Fatal  func(error)
	Logger *slog.Logger // slog.Default()
}

// maxDistrusted bounds the memory for distrusted keys. So many mean a Store that confirms nothing.
const maxDistrusted = 1 << 16

// Guard is a Store that keeps memory safe when another Store cannot say whether it is done with it.
//
// It reads every answer with suspicion: an item without a class, a wrong number of items, or an
// object that was not asked for, makes the answer of the whole batch unconfirmed. The memory of an
// unconfirmed item is quarantined, so that the arena hands it out to nobody, until a Close of the Store
// has succeeded, which proves that it let go. The key is distrusted as long as the Guard lives: it is
// absent to Exists and Get, and refused by Put, since a Store that lost track of an object may claim to
// have it.
//
// Memory that the Store reserved for itself in a Get and did not hand out is the Store's to quarantine;
// the Guard counts it. Memory on loan from the Store is given back: we only ever read it.
//
// A Guard is a Store like the one it wraps, and passes the same contract.
type Guard struct {
	cfg  GuardConfig
	shut atomic.Pointer[error] // why no call is made any more; nil while open

	absence absence

	mu        sync.Mutex // guards the fields below
	distrust  map[embedding.Key]bool
	tokens    []arena.Token // of quarantines in cfg.Arena
	held      []*arena.Buf  // memory elsewhere, one reference each
	lost      int64         // bytes given up
	count     uint64        // unconfirmed completions
	poisoned  bool
	distrusts atomic.Int64 // len(distrust), read without mu
}

// NewGuard wraps cfg.Store.
func NewGuard(cfg GuardConfig) (*Guard, error) {
	cfg.OnUnconfirmed = cmp.Or(cfg.OnUnconfirmed, Drain)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	switch {
	case cfg.Store == nil:
		return nil, errors.New("store: a Guard needs a Store")
	case cfg.OnUnconfirmed != Drain && cfg.OnUnconfirmed != Exit:
		return nil, fmt.Errorf("store: on_unconfirmed is %q, want %s or %s", cfg.OnUnconfirmed, Drain, Exit)
	}
	return &Guard{cfg: cfg, distrust: map[embedding.Key]bool{}}, nil
}

// Guarded returns s if it is a Guard already, else s behind one that drains. Of no Store it makes none.
func Guarded(s Store, log *slog.Logger) (Store, error) {
	if _, ok := s.(*Guard); ok || s == nil {
		return s, nil
	}
	g, err := NewGuard(GuardConfig{Store: s, Logger: log})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// Err returns why the Guard makes no calls any more, nil while it does. Under Exit it wraps
// ErrMustExit.
func (g *Guard) Err() error {
	if p := g.shut.Load(); p != nil {
		return *p
	}
	return nil
}

// Exists implements Store. A distrusted key is absent.
func (g *Guard) Exists(ctx context.Context, keys []embedding.Key) ([]State, error) {
	if err := g.Err(); err != nil {
		return nil, err
	}
	states, err := g.cfg.Store.Exists(ctx, keys)
	switch {
	case err != nil:
		if !Classified(err) {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err) // no memory of ours is at stake
		}
		g.note(err)
		return nil, err
	case len(states) != len(keys):
		err := fmt.Errorf("%w: %d answers to %d keys", ErrUnavailable, len(states), len(keys))
		if g.cfg.OnUnconfirmed == Exit {
			g.fatal(err)
		}
		return nil, err
	}
	g.note(nil)
	if g.distrusts.Load() > 0 {
		g.mu.Lock()
		defer g.mu.Unlock()
		for i, k := range keys {
			if g.distrust[k] {
				states[i] = State{}
			}
		}
	}
	return states, nil
}

// NoneStored implements Excluder where the Store does.
func (g *Guard) NoneStored(keys []embedding.Key) bool {
	ex, ok := g.cfg.Store.(Excluder)
	return ok && g.Err() == nil && ex.NoneStored(keys)
}

// Get implements Store.
func (g *Guard) Get(ctx context.Context, wants []Want) []Got {
	if err := g.Err(); err != nil {
		return failed(len(wants), err)
	}
	if g.distrusts.Load() > 0 {
		if ask, at := g.trusted(wants); len(ask) < len(wants) {
			gots := failed(len(wants), fmt.Errorf("%w: %w", ErrMiss, ErrDistrusted))
			if len(ask) > 0 {
				for i, got := range g.judge(ask, g.cfg.Store.Get(ctx, ask)) {
					gots[at[i]] = got
				}
			}
			return gots
		}
	}
	return g.judge(wants, g.cfg.Store.Get(ctx, wants))
}

// trusted returns the wants whose keys are trusted, and where they stand.
func (g *Guard) trusted(wants []Want) (ask []Want, at []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, w := range wants {
		if !g.distrust[w.Key] {
			ask, at = append(ask, w), append(at, i)
		}
	}
	return ask, at
}

func failed(n int, err error) []Got {
	gots := make([]Got, n)
	for i := range gots {
		gots[i].Err = err
	}
	return gots
}

// Put implements Store.
func (g *Guard) Put(ctx context.Context, key embedding.Key, buf *arena.Buf, opts PutOptions) error {
	if err := g.Err(); err != nil {
		return err
	}
	if g.distrusts.Load() > 0 {
		g.mu.Lock()
		bad := g.distrust[key]
		g.mu.Unlock()
		if bad {
			return fmt.Errorf("%w: %w", ErrRejected, ErrDistrusted)
		}
	}
	return g.put(g.cfg.Store.Put(ctx, key, buf, opts), key, buf)
}

// Remove implements Store.
func (g *Guard) Remove(ctx context.Context, keys []embedding.Key) error {
	if err := g.Err(); err != nil {
		return err
	}
	return g.cfg.Store.Remove(ctx, keys)
}

// Events implements Store.
func (g *Guard) Events(ctx context.Context) <-chan Event { return g.cfg.Store.Events(ctx) }

// Capabilities implements Store.
func (g *Guard) Capabilities() Capabilities { return g.cfg.Store.Capabilities() }

// Close implements Store. When it succeeds the Store has let go of all memory, so what was in
// quarantine goes back to the arena. A poisoned Guard closes nothing and returns its error: memory stays
// registered until the process ends.
func (g *Guard) Close() error {
	g.mu.Lock()
	poisoned := g.poisoned
	g.mu.Unlock()
	if poisoned {
		return g.Err()
	}
	closed := error(fmt.Errorf("%w: client closed", ErrUnavailable))
	g.shut.CompareAndSwap(nil, &closed)
	if err := g.cfg.Store.Close(); err != nil {
		return err
	}
	g.mu.Lock()
	held, tokens := g.held, g.tokens
	g.held, g.tokens, g.lost = nil, nil, 0
	g.mu.Unlock()
	for _, b := range held {
		b.Release()
	}
	for _, t := range tokens {
		g.cfg.Arena.Reclaim(t)
	}
	return nil
}
