// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"sync/atomic"

	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
)

// storeLink is what a worker's own table says of the shared Store.
type storeLink struct {
	socket        string // with store.kind = ram; "" shares nothing
	off           bool   // shares nothing, whatever the kind
	onUnconfirmed string // "" drains
}

// dialStore returns the shared Store behind its guard, or nil when this worker shares nothing. A Store
// that is away is no error: it is looked for again.
func dialStore(ctx context.Context, cfg config.Config, own storeLink, p *process, memory *arena.Arena, state *readiness, parts *closers) (store.Store, error) {
	s, err := openStore(ctx, cfg, own, p, memory, state, parts)
	if s == nil || err != nil {
		return nil, err
	}
	g, err := store.NewGuard(store.GuardConfig{
		Store: s, OnUnconfirmed: store.OnUnconfirmed(own.onUnconfirmed), Arena: memory,
		Unready: state.fail, Fatal: func(err error) { exitNow(p, err) }, Logger: p.log,
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	parts.add(g.Close)
	p.registry.MustRegister(g.Collectors()...)
	return g, nil
}

// openStore opens the Store that the configuration names; nil if it names none.
func openStore(ctx context.Context, cfg config.Config, own storeLink, p *process, memory *arena.Arena, state *readiness, parts *closers) (store.Store, error) {
	switch {
	case own.off || cfg.Store.Kind == config.StoreNone:
		return nil, nil
	case cfg.Store.Kind == config.StoreMooncake:
		c, err := openMooncake(ctx, cfg, p, memory, parts)
		if err != nil {
			return nil, err
		}
		state.store = c.Err
		return c, nil
	case own.socket == "":
		return nil, nil
	default:
		if _, err := os.Stat(own.socket); err != nil {
			p.log.Warn("no Store is there; images are encoded until one is", "socket", own.socket, "err", err)
		}
		return ram.Dial(ctx, ram.ClientConfig{Path: own.socket, Arena: memory, Polls: p.polls})
	}
}

// exitNow ends the process as on_unconfirmed = "exit" demands: nobody may use memory that the Store may
// still write into, not even to take things apart.
func exitNow(p *process, err error) {
	p.log.Error("the worker exits", "error", err)
	os.Exit(exitFailure)
}

// readiness holds why the process must not get requests any more. Its zero value is ready.
type readiness struct {
	reason atomic.Pointer[string]
	store  func() error // says why the Store is lost for good; set before err is called, or nil
}

// fail makes the process unready for good.
func (r *readiness) fail(reason string) { r.reason.CompareAndSwap(nil, &reason) }

func (r *readiness) err() error {
	if reason := r.reason.Load(); reason != nil {
		return errors.New(*reason)
	}
	if r.store != nil {
		return r.store()
	}
	return nil
}
