// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// Putting is one Put of PutAll.
type Putting struct {
	Key  embedding.Key
	Buf  *arena.Buf // borrowed
	Opts PutOptions
}

// Batcher is a Store to which several PUTs in one call cost less than one by one.
type Batcher interface {
	// PutAll is Put for each of puts, whose keys differ, and answers them in order; items fail alone.
	PutAll(ctx context.Context, puts []Putting) []error
}

// put reads the answer to a Put.
func (g *Guard) put(err error, key embedding.Key, buf *arena.Buf) error {
	if err == nil || Classified(err) && !errors.Is(err, ErrUnconfirmed) {
		g.note(err)
		return err
	}
	if !errors.Is(err, ErrUnconfirmed) {
		err = fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	if errors.Is(err, ErrHeld) && g.cfg.OnUnconfirmed == Drain {
		g.counted()
		return err
	}
	return g.unconfirmed(err, []embedding.Key{key}, []*arena.Buf{buf.Retain()}, int64(buf.Len()))
}

// PutAll implements Batcher. Where the Store does not, or a key may be distrusted, it is a Put for each.
func (g *Guard) PutAll(ctx context.Context, puts []Putting) []error {
	errs := make([]error, len(puts))
	batcher, ok := g.cfg.Store.(Batcher)
	if !ok || g.Err() != nil || g.distrusts.Load() > 0 {
		for i, p := range puts {
			errs[i] = g.Put(ctx, p.Key, p.Buf, p.Opts)
		}
		return errs
	}
	got := batcher.PutAll(ctx, puts)
	for i, p := range puts {
		if len(got) == len(puts) {
			errs[i] = g.put(got[i], p.Key, p.Buf)
		} else {
			errs[i] = g.put(fmt.Errorf("%w: %d answers to %d keys", ErrUnconfirmed, len(got), len(puts)), p.Key, p.Buf)
		}
	}
	return errs
}

// Batches says whether PutAll of the Store is worth more than a Put for each.
func (g *Guard) Batches() bool { _, ok := g.cfg.Store.(Batcher); return ok }
