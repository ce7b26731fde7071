// SPDX-License-Identifier: Apache-2.0

// Package resolve finds embeddings that exist already, before anything is encoded: in the cache of
// this process, then in the shared Store.
//
// A Resolve asks the cache for each item, the Store once for all that are left, and reads what is
// there in batches bounded in bytes; loans take no memory and are not bounded. A Store that does not tell
// sizes is not asked while it has what is looked for (expectation). Every object that comes
// from the Store is checked against the key and the contract of its item, so a wrong one is a miss of
// that item alone; it is counted by reason and removed from the Store, so that the right one can take
// its place.
//
// A fault of the Store is a miss too: it costs at most the Timeout, never the request. What the Store
// cannot account for is quarantined (store.Guard).
//
// A read can cost more than the encode that it saves. An Estimator learns what both take; with
// ReadOrRecompute a read that is expected to lose is not made, and with Hedge one that is late runs
// against an encode.
//
// Flight is the other half of encoding once: callers that miss the same key at once take turns.
package resolve

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// Item asks for one embedding.
type Item struct {
	Key      embedding.Key
	Contract embedding.Contract
	Tenant   string // for Sighted; "" is nobody's
	// Bytes is the size of the object, 0 where that is not known. A Store that does not tell sizes is asked for
	// just that.
	Bytes int
	// Stored says that the Store has it, as of a moment ago: where all items are Stored, it is not asked again.
	Stored bool
}

// Result answers one Item. Either Buf is set, Source says where it came from, and the caller owns one
// reference; or the item has to be encoded, and Reason says why.
type Result struct {
	Buf    *arena.Buf
	Meta   embedding.Meta
	Source control.Source // SourceLocal, SourceStore or, after a hedge, SourceEncoded
	Reason Reason         // "" with a Buf
	Err    error          // what the Store or the check said; nil for a plain miss
}

// Encode makes the object of the item with index i. The caller owns one reference of the Buf. It must
// return soon after ctx ends, and may be called from several goroutines at once.
type Encode func(ctx context.Context, i int) (*arena.Buf, embedding.Meta, error)

// Resolver finds embeddings. Its methods may be called from any goroutine.
type Resolver struct {
	cfg        Config
	batches    sync.Pool           // of *batch
	reading    *semaphore.Weighted // of ReadBufferBytes
	overtime   *overtime           // of Timeout
	failing    atomic.Bool         // the Store refused what was asked last; for the log
	expects    expectation         // that the Store has what is looked for
	skipped    atomic.Uint64       // reads left out by ReadOrRecompute
	background sync.WaitGroup      // losers of hedges
}

// New returns a Resolver.
func New(cfg Config) (*Resolver, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	cfg.Metrics.maxReading.Set(float64(cfg.ReadBufferBytes))
	r := &Resolver{cfg: cfg, reading: semaphore.NewWeighted(cfg.ReadBufferBytes), overtime: newOvertime(cfg.Timeout)}
	r.batches.New = func() any { return &batch{r: r} }
	return r, nil
}

// Metrics returns the counters of r.
func (r *Resolver) Metrics() *Metrics { return r.cfg.Metrics }

// Estimator returns what r knows of the time that reads and encodes take. Whoever encodes tells it.
func (r *Resolver) Estimator() *Estimator { return r.cfg.Estimator }

// Wait returns when nothing runs in the background any more. It is called after the last Resolve and
// before the memory that encodes use is given back.
func (r *Resolver) Wait() { r.background.Wait() }

// Resolve answers each item in order.
func (r *Resolver) Resolve(ctx context.Context, items []Item) []Result {
	results := make([]Result, len(items))
	r.ResolveOr(ctx, items, results, nil)
	return results
}

// ResolveOr answers each item in order, into results, which has the length of items. Items with equal
// keys are looked up once and share one Buf, each with a reference of its own. It returns soon after ctx
// ends. encode serves Hedge and may be nil.
//
// When the Store has nothing, ResolveOr makes one Store call at most and allocates nothing itself, but for a
// context where there is a call and ctx does not end within Timeout anyway.
func (r *Resolver) ResolveOr(ctx context.Context, items []Item, results []Result, encode Encode) {
	if err := r.reap(); err != nil {
		for i := range results {
			results[i] = Result{Reason: reasonOf(err), Err: err}
		}
		r.cfg.Metrics.count(results)
		return
	}
	b := r.batches.Get().(*batch)
	b.items, b.results, b.encode, b.caller = items, results, encode, ctx
	b.lead()
	for i := range items {
		results[i] = Result{}
		if b.leader[i] == i && !r.local(items[i], &results[i]) {
			b.missing = append(b.missing, i)
		}
	}
	if len(b.missing) > 0 {
		r.fromStore(ctx, b)
	}
	for i, j := range b.leader {
		if j != i {
			b.follow(i, j)
		}
	}
	r.cfg.Metrics.count(results)
	b.clear()
	r.batches.Put(b)
}

// reap asks for a fault that ends the worker.
func (r *Resolver) reap() error {
	if r.cfg.Reap == nil {
		return nil
	}
	return r.cfg.Reap()
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
	if r.cfg.Sighted != nil {
		r.cfg.Sighted(it.Tenant, it.Key, buf, meta)
	}
	return true
}

// fromStore fills the results of items that the cache lacks.
func (r *Resolver) fromStore(ctx context.Context, b *batch) {
	if r.cfg.Store == nil {
		for _, i := range b.missing {
			b.results[i].Reason = NoStore
		}
		return
	}
	b.list()
	if b.excluded() {
		return
	}
	if end, ok := ctx.Deadline(); !ok || time.Until(end) > r.cfg.Timeout {
		call := r.overtime.begin(ctx)
		defer r.overtime.end(call)
		ctx = call
	}
	b.ask(ctx)
	for ws := b.wanted; len(ws) > 0; {
		n := b.chunk(ws)
		b.read(ctx, ws[:n])
		ws = ws[n:]
	}
	b.learn()
	r.remove(ctx, b.wrong)
	r.note(b.fault)
}

// Forget removes objects that a reader found to be wrong from the Store, for at most Timeout. What cannot be removed is
// logged.
func (r *Resolver) Forget(ctx context.Context, wrong []embedding.Key) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	r.remove(ctx, wrong)
}

func (r *Resolver) remove(ctx context.Context, wrong []embedding.Key) {
	if len(wrong) == 0 || r.cfg.Store == nil || r.cfg.KeepWrong {
		return
	}
	if err := r.cfg.Store.Remove(ctx, wrong); err != nil {
		r.cfg.Logger.Warn("resolve: wrong objects stay in the Store", "objects", len(wrong), "error", err)
	}
}

// note logs when the Store starts to refuse, and when it is well again. Of other faults it tells itself.
func (r *Resolver) note(fault error) {
	if errors.Is(fault, context.Canceled) {
		return // the caller's doing
	}
	if store.Told(fault) {
		r.cfg.Logger.Debug("resolve: Store fails, encoding instead", "error", fault)
		return
	}
	if failing := fault != nil; r.failing.Swap(failing) != failing {
		if failing {
			r.cfg.Logger.Warn("resolve: Store refuses, encoding instead", "error", fault)
		} else {
			r.cfg.Logger.Info("resolve: Store takes questions again")
		}
	}
}
