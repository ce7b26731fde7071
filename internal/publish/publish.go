// SPDX-License-Identifier: Apache-2.0

// Package publish stores fresh embeddings in the shared Store, in the background and as well as it
// can: no request ever waits for it, and what it cannot store is encoded again some day.
//
// Publish takes a reference and returns at once. Waiting and running publications are bounded in
// number and in bytes; beyond that, and for every other reason, a publication is dropped, counted by
// reason, and logged now and then. Workers take them in order: an object is checked (never empty, never
// NaN or infinite), its key is looked up, and only what the Store lacks is sent. A Store that takes several
// objects at once gets what waits in one call.
//
// Every reference is released when its publication ends, not when somebody asks. After
// store.ErrUnconfirmed somebody may still read the memory; keeping it is the business of store.Guard.
package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// Config sets up a Publisher. Zero values mean the default, which each field names.
type Config struct {
	// Store is the shared Store; nil: everything is dropped. Unless it is a *store.Guard already, it is
	// put behind one that drains.
	Store     store.Store
	Protocol  embedding.Protocol // format of the objects; required
	Admission Admission          // Always
	// MaxPendingItems and MaxPendingBytes bound publications that wait or run (store_max_pending_items,
	// store_max_pending_bytes); 32 and 2 GiB.
	MaxPendingItems int
	MaxPendingBytes int64
	TTL             time.Duration // time that objects live in a Store that can tell; 0 is until evicted
	Timeout         time.Duration // of the Store calls of one publication; 30 s
	Workers         int           // publications that run at once; 1
	Metrics         *Metrics      // NewMetrics()
	Logger          *slog.Logger  // slog.Default(); one line per reason and LogEvery
	LogEvery        time.Duration // 10 s
}

func (c Config) withDefaults() (Config, error) {
	c.MaxPendingItems = cmp.Or(c.MaxPendingItems, 32)
	c.MaxPendingBytes = cmp.Or(c.MaxPendingBytes, 2<<30)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.Workers = cmp.Or(c.Workers, 1)
	c.Admission = cmp.Or(c.Admission, Always)
	c.LogEvery = cmp.Or(c.LogEvery, 10*time.Second)
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Protocol != embedding.V3 && c.Protocol != embedding.A1:
		return c, fmt.Errorf("publish: unknown protocol %q, want v3 or a1", c.Protocol)
	case c.MaxPendingItems < 0:
		return c, fmt.Errorf("publish: store_max_pending_items is %d, want more than 0", c.MaxPendingItems)
	case c.MaxPendingBytes < 0:
		return c, fmt.Errorf("publish: store_max_pending_bytes is %d, want more than 0", c.MaxPendingBytes)
	case c.TTL < 0:
		return c, fmt.Errorf("publish: TTL is %v, want at least 0", c.TTL)
	case c.Timeout < 0 || c.Workers < 0:
		return c, fmt.Errorf("publish: Timeout %v and %d workers, want more than 0", c.Timeout, c.Workers)
	case c.Admission != Always && c.Admission != SecondSighting:
		return c, fmt.Errorf("publish: admission is %q, want %s or %s", c.Admission, Always, SecondSighting)
	}
	var err error
	c.Store, err = store.Guarded(c.Store, c.Logger)
	return c, err
}

// job is one publication.
type job struct {
	tenant string // whose quota it counts for
	key    embedding.Key
	buf    *arena.Buf
	meta   embedding.Meta
	done   chan struct{} // closed when the job has ended and its reference is back
}

// Publisher stores objects in the background. Its methods may be called from any goroutine.
type Publisher struct {
	cfg     Config
	guard   *store.Guard    // cfg.Store; nil without one
	ctx     context.Context // of all Store calls
	stop    context.CancelFunc
	workers sync.WaitGroup
	log     limitedLog

	mu      sync.Mutex // guards the fields below and sends to queue
	queue   chan *job  // never full: it holds MaxPendingItems
	pending map[embedding.Key]*job
	budget  budget
	seen    *sketch // nil with Always
	fatal   error   // ends the worker
	closed  bool
}

// New starts a Publisher. It must be closed.
func New(cfg Config) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		cfg:     cfg,
		queue:   make(chan *job, cfg.MaxPendingItems),
		pending: make(map[embedding.Key]*job),
		budget:  budget{max: cfg.MaxPendingBytes, charges: map[*arena.Buf]*charge{}},
		log:     limitedLog{to: cfg.Logger, every: cfg.LogEvery},
	}
	cfg.Metrics.limits(cfg.MaxPendingItems, cfg.MaxPendingBytes)
	p.guard, _ = cfg.Store.(*store.Guard)
	if cfg.Admission == SecondSighting {
		p.seen = newSketch()
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	for range cfg.Workers {
		p.workers.Go(p.work)
	}
	return p, nil
}

// Metrics returns the counters of p.
func (p *Publisher) Metrics() *Metrics { return p.cfg.Metrics }

// Err returns the fault of a publication that the worker must not survive: its completion is
// unconfirmed and the Store's Guard is set to exit. It is nil otherwise.
func (p *Publisher) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fatal
}

// Publish queues the sealed object in buf, which meta describes, and returns at once. The caller
// keeps its reference. What cannot be queued is dropped and counted.
func (p *Publisher) Publish(key embedding.Key, buf *arena.Buf, meta embedding.Meta) {
	p.PublishFor("", key, buf, meta)
}

// PublishFor is Publish of what counts for the quota of a tenant, where the Store has quotas; "" is nobody's.
func (p *Publisher) PublishFor(tenant string, key embedding.Key, buf *arena.Buf, meta embedding.Meta) {
	p.mu.Lock()
	o := p.admitLocked(tenant, key, buf, meta, false)
	p.mu.Unlock()
	p.refused(o)
}

// Sighted says that the object of key served a request of tenant again without being made. Under
// SecondSighting it is published when this is its second sighting; under Always it was published when it was
// made.
func (p *Publisher) Sighted(tenant string, key embedding.Key, buf *arena.Buf, meta embedding.Meta) {
	if p.seen == nil {
		return
	}
	p.mu.Lock()
	o := p.admitLocked(tenant, key, buf, meta, true)
	p.mu.Unlock()
	p.refused(o)
}

func (p *Publisher) refused(o Outcome) {
	if o != queued && o != known {
		p.cfg.Metrics.count(o)
		p.log.drop(o, nil)
	}
}

// admitLocked queues a publication or says why not. again: the object was not made for this sighting, so
// after the second one nothing is new.
func (p *Publisher) admitLocked(tenant string, key embedding.Key, buf *arena.Buf, meta embedding.Meta, again bool) Outcome {
	_, dup := p.pending[key]
	switch {
	case p.cfg.Store == nil:
		return NoStore
	case p.fatal != nil:
		return Unconfirmed
	case p.closed:
		return Closed
	case dup:
		return Duplicate
	}
	if p.seen != nil {
		switch before := p.seen.sight(key); {
		case before == 0:
			return FirstSighting
		case before > 1 && again:
			return known
		}
	}
	if len(p.pending) >= p.cfg.MaxPendingItems {
		return FullItems
	}
	if !p.budget.charge(buf) {
		return FullBytes
	}
	j := &job{tenant: tenant, key: key, buf: buf.Retain(), meta: meta, done: make(chan struct{})}
	p.pending[key] = j
	p.cfg.Metrics.pending(len(p.pending), p.budget.bytes)
	p.queue <- j
	return queued
}

// Flush waits until everything that was published before it has ended, well or not.
func (p *Publisher) Flush(ctx context.Context) error {
	p.mu.Lock()
	jobs := make([]*job, 0, len(p.pending))
	for _, j := range p.pending {
		jobs = append(jobs, j)
	}
	p.mu.Unlock()
	for i, j := range jobs {
		select {
		case <-j.done:
		case <-ctx.Done():
			return fmt.Errorf("publish: up to %d of %d publications unfinished: %w", len(jobs)-i, len(jobs), ctx.Err())
		}
	}
	return nil
}

// Close refuses all further work and drains what is queued until ctx ends; the rest is dropped and
// counted. It returns when the workers have ended, with an error if anything was dropped, or if Err has
// one. A second Close only waits.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.queue)
	}
	p.mu.Unlock()
	err := p.Flush(ctx)
	p.stop()
	p.workers.Wait()
	return errors.Join(err, p.Err())
}
