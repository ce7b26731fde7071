// SPDX-License-Identifier: Apache-2.0

// Package resolve finds embeddings that exist already, before anything is encoded: in the cache of
// this process, then in the shared Store.
//
// A Resolve asks the cache for each item, the Store once for all that are left, and reads what is
// there in batches bounded in bytes. Every object that comes from the Store is checked against the
// key and the contract of its item, so a wrong one is a miss of that item alone; it is counted by
// reason and removed from the Store, so that the right one can take its place.
//
// A fault of the Store is a miss too: it costs at most the Timeout, never the request.
//
// Flight is the other half of encoding once: callers that miss the same key at once take turns.
package resolve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// Cache is what a Resolver needs of the cache of the process. Get hands out a reference of its own.
type Cache interface {
	Get(embedding.Key) (*arena.Buf, embedding.Meta, bool)
	Put(embedding.Key, *arena.Buf, embedding.Meta)
	Remove(embedding.Key)
	// Evict gives back memory to the arena and returns how many bytes.
	Evict(int64) int64
}

// Config sets up a Resolver. Zero values mean the default, which each field names.
type Config struct {
	Cache    Cache              // nil: nothing is kept
	Store    store.Store        // nil: there is no shared Store
	Protocol embedding.Protocol // format of the objects; required
	// ReadBufferBytes bounds the objects of one batch, so the memory that reads take at once; 128 MiB.
	// A larger object is encoded instead.
	ReadBufferBytes int64
	// Timeout bounds all Store calls of one Resolve; 2 s.
	Timeout time.Duration
	Metrics *Metrics     // NewMetrics()
	Logger  *slog.Logger // slog.Default(); one line when the Store fails, one when it is back
}

// Item asks for one embedding.
type Item struct {
	Key      embedding.Key
	Contract embedding.Contract
}

// Result answers one Item. Either Buf is set, Source says where it came from, and the caller owns one
// reference; or the item has to be encoded, and Reason says why.
type Result struct {
	Buf    *arena.Buf
	Meta   embedding.Meta
	Source control.Source // SourceLocal or SourceStore
	Reason Reason         // "" with a Buf
	Err    error          // what the Store or the check said; nil for a plain miss
}

// Resolver finds embeddings. Its methods may be called from any goroutine.
type Resolver struct {
	cfg     Config
	failing atomic.Bool // the last Store call failed; for the log
}

// New returns a Resolver.
func New(cfg Config) (*Resolver, error) {
	cfg.ReadBufferBytes = cmp.Or(cfg.ReadBufferBytes, 128<<20)
	cfg.Timeout = cmp.Or(cfg.Timeout, 2*time.Second)
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	switch {
	case cfg.Protocol != embedding.V3 && cfg.Protocol != embedding.A1:
		return nil, fmt.Errorf("resolve: unknown protocol %q, want v3 or a1", cfg.Protocol)
	case cfg.ReadBufferBytes < 0:
		return nil, fmt.Errorf("resolve: store_read_buffer_bytes is %d, want more than 0", cfg.ReadBufferBytes)
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("resolve: Timeout is %v, want more than 0", cfg.Timeout)
	}
	return &Resolver{cfg: cfg}, nil
}

// Metrics returns the counters of r.
func (r *Resolver) Metrics() *Metrics { return r.cfg.Metrics }

// Resolve answers each item in order. Equal items are looked up once and share one Buf, each with a
// reference of its own. It returns soon after ctx ends.
func (r *Resolver) Resolve(ctx context.Context, items []Item) []Result {
	results := make([]Result, len(items))
	first := make(map[Item]int, len(items))
	var missing []int
	for i, it := range items {
		if _, ok := first[it]; ok {
			continue
		}
		first[it] = i
		if !r.local(it, &results[i]) {
			missing = append(missing, i)
		}
	}
	if len(missing) > 0 {
		r.fromStore(ctx, items, results, missing)
	}
	for i, it := range items {
		if j := first[it]; j != i {
			results[i] = results[j]
			if results[i].Buf != nil {
				results[i].Buf.Retain()
			}
		}
	}
	r.cfg.Metrics.count(results)
	return results
}

// local looks into the cache. An entry that breaks the contract is dropped: the key was right, so it
// can serve nobody.
func (r *Resolver) local(it Item, res *Result) bool {
	if r.cfg.Cache == nil {
		return false
	}
	buf, meta, ok := r.cfg.Cache.Get(it.Key)
	if !ok {
		return false
	}
	if err := it.Contract.Check(meta.Rows, meta.Cols, meta.DType); err != nil {
		buf.Release()
		r.cfg.Cache.Remove(it.Key)
		r.cfg.Metrics.localDropped.Inc()
		return false
	}
	*res = Result{Buf: buf, Meta: meta, Source: control.SourceLocal}
	return true
}

// fromStore fills the results of items that the cache lacks.
func (r *Resolver) fromStore(ctx context.Context, items []Item, results []Result, missing []int) {
	if r.cfg.Store == nil {
		for _, i := range missing {
			results[i].Reason = NoStore
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	b := batch{r: r, items: items, results: results}
	wanted := b.ask(ctx, missing)
	for len(wanted) > 0 {
		n := b.chunk(wanted)
		b.read(ctx, wanted[:n])
		wanted = wanted[n:]
	}
	if len(b.wrong) > 0 {
		if err := r.cfg.Store.Remove(ctx, b.wrong); err != nil {
			r.cfg.Logger.Warn("resolve: wrong objects stay in the Store", "objects", len(b.wrong), "error", err)
		}
	}
	r.note(b.fault)
}

// note logs when the Store starts to fail, and when it is well again.
func (r *Resolver) note(fault error) {
	if errors.Is(fault, context.Canceled) {
		return // the caller's doing
	}
	if failing := fault != nil; r.failing.Swap(failing) != failing {
		if failing {
			r.cfg.Logger.Warn("resolve: Store fails, encoding instead", "error", fault)
		} else {
			r.cfg.Logger.Info("resolve: Store is back")
		}
	}
}
