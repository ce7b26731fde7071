// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"afterimage/internal/arena"
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
	Cache Cache // nil: nothing is kept
	// Store is the shared Store; nil: there is none. Unless it is a *store.Guard already, it is put
	// behind one that drains.
	Store    store.Store
	Protocol embedding.Protocol // format of the objects; required
	// KeepWrong leaves objects that do not fit in the Store: they may fit others, who write there too.
	KeepWrong bool
	// ReadBufferBytes bounds the objects that are being read at once, whoever asked for them; 128 MiB.
	// A larger object is encoded instead. Objects on loan take none and are not bounded.
	ReadBufferBytes int64
	// Timeout bounds all Store calls of one Resolve; 2 s.
	Timeout time.Duration
	// Reap returns the fault of a publication that no worker survives; nil: there is none. It is asked
	// before anything else.
	Reap func() error
	// Sighted is told of every hit in Cache, for a publisher that waits for a second sighting; nil is
	// nobody. It must not block.
	Sighted func(tenant string, key embedding.Key, buf *arena.Buf, meta embedding.Meta)
	// ReadOrRecompute leaves out reads that are expected to take longer than encoding.
	ReadOrRecompute bool
	// Hedge starts an encode beside a read that is late, where the caller of ResolveOr offers one.
	Hedge     bool
	Estimator *Estimator   // NewEstimator()
	Metrics   *Metrics     // NewMetrics()
	Logger    *slog.Logger // slog.Default(); one line when the Store refuses, one when it does so no longer
}

func (c Config) withDefaults() (Config, error) {
	c.ReadBufferBytes = cmp.Or(c.ReadBufferBytes, 128<<20)
	c.Timeout = cmp.Or(c.Timeout, 2*time.Second)
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	if c.Estimator == nil {
		c.Estimator = NewEstimator()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Protocol != embedding.V3 && c.Protocol != embedding.A1:
		return c, fmt.Errorf("resolve: unknown protocol %q, want v3 or a1", c.Protocol)
	case c.ReadBufferBytes < 0:
		return c, fmt.Errorf("resolve: store_read_buffer_bytes is %d, want more than 0", c.ReadBufferBytes)
	case c.Timeout < 0:
		return c, fmt.Errorf("resolve: Timeout is %v, want more than 0", c.Timeout)
	}
	var err error
	c.Store, err = store.Guarded(c.Store, c.Logger)
	return c, err
}
