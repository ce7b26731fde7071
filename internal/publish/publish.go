// SPDX-License-Identifier: Apache-2.0

// Package publish stores fresh embeddings in the shared Store, in the background and as well as it
// can: no request ever waits for it, and what it cannot store is encoded again some day.
//
// Publish takes a reference and returns at once. Waiting and running publications are bounded in
// number and in bytes; beyond that, and for every other reason, a publication is dropped and counted.
// Workers take them in order: an object is checked (never empty, never NaN or infinite), its key is
// looked up, and only what the Store lacks is sent.
//
// Every reference is released when its publication ends, with one exception: after
// store.ErrUnconfirmed somebody may still read the memory, so it is never given back.
package publish

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// Store is what a Publisher needs of a store.Store.
type Store interface {
	Exists(ctx context.Context, keys []embedding.Key) ([]store.State, error)
	Put(ctx context.Context, key embedding.Key, buf *arena.Buf, opts store.PutOptions) error
}

// Config sets up a Publisher. Zero values mean the default, which each field names.
type Config struct {
	Store    Store              // nil: everything is dropped
	Protocol embedding.Protocol // format of the objects; required
	// MaxPendingItems and MaxPendingBytes bound publications that wait or run (store_max_pending_items,
	// store_max_pending_bytes); 32 and 2 GiB.
	MaxPendingItems int
	MaxPendingBytes int64
	Timeout         time.Duration // of the Store calls of one publication; 30 s
	Workers         int           // publications that run at once; 1
	Metrics         *Metrics      // NewMetrics()
	Logger          *slog.Logger  // slog.Default(); one line when the Store fails, one when it is back
}

func (c Config) withDefaults() (Config, error) {
	c.MaxPendingItems = cmp.Or(c.MaxPendingItems, 32)
	c.MaxPendingBytes = cmp.Or(c.MaxPendingBytes, 2<<30)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.Workers = cmp.Or(c.Workers, 1)
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
	case c.Timeout < 0 || c.Workers < 0:
		return c, fmt.Errorf("publish: Timeout %v and %d workers, want more than 0", c.Timeout, c.Workers)
	}
	return c, nil
}

// job is one publication.
type job struct {
	key  embedding.Key
	buf  *arena.Buf
	meta embedding.Meta
	done chan struct{} // closed when the job has ended and its reference is back
}

// Publisher stores objects in the background. Its methods may be called from any goroutine.
type Publisher struct {
	cfg     Config
	ctx     context.Context // of all Store calls
	stop    context.CancelFunc
	workers sync.WaitGroup
	failing atomic.Bool // the last publication failed; for the log

	mu      sync.Mutex // guards the fields below and sends to queue
	queue   chan *job  // never full: it holds MaxPendingItems
	pending map[embedding.Key]*job
	bytes   int64 // of pending
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
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	for range cfg.Workers {
		p.workers.Go(p.work)
	}
	return p, nil
}

// Metrics returns the counters of p.
func (p *Publisher) Metrics() *Metrics { return p.cfg.Metrics }

// Publish queues the sealed object in buf, which meta describes, and returns at once. The caller
// keeps its reference. What cannot be queued is dropped and counted.
func (p *Publisher) Publish(key embedding.Key, buf *arena.Buf, meta embedding.Meta) {
	if r := p.admit(key, buf, meta); r != queued {
		p.cfg.Metrics.count(r)
	}
}

func (p *Publisher) admit(key embedding.Key, buf *arena.Buf, meta embedding.Meta) Outcome {
	if p.cfg.Store == nil {
		return NoStore
	}
	n := int64(buf.Len())
	p.mu.Lock()
	defer p.mu.Unlock()
	switch _, dup := p.pending[key]; {
	case p.closed:
		return Closed
	case dup:
		return Duplicate
	case len(p.pending) >= p.cfg.MaxPendingItems:
		return FullItems
	case p.bytes+n > p.cfg.MaxPendingBytes:
		return FullBytes
	}
	j := &job{key: key, buf: buf.Retain(), meta: meta, done: make(chan struct{})}
	p.pending[key] = j
	p.bytes += n
	p.cfg.Metrics.pending(len(p.pending), p.bytes)
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
// counted. It returns when the workers have ended, with an error if anything was dropped. A second
// Close only waits.
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
	return err
}
