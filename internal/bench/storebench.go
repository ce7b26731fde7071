// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
)

// StoreBench is what the benchmarks of the reuse core need: a Store in a process of its own, on this host.
type StoreBench struct {
	Binary   string    // this program
	Env      []string  // of the processes; the configuration in it is left out
	Progress io.Writer // for people; nil for none
	Redis    bool      // compare with a redis-server
	Only     Only      // what of a hit is measured; all of it when empty
	Rounds   Rounds
	Sizes    []int // bytes of the payloads, multiples of 256
	Counts   []int // objects of one request
	Seeding  Seeding

	// serve starts a Store of so many bytes on a socket, and returns its end and the URL of its metrics;
	// nil runs Binary.
	serve func(ctx context.Context, socket string, bytes int64) (stop func(), metrics string, err error)
}

// DefaultStoreBench returns the figures that the targets are stated for.
func DefaultStoreBench() StoreBench {
	return StoreBench{Redis: true, Rounds: DefaultRounds(), Sizes: []int{16 << 10, 1 << 20, 30 << 20}, Counts: []int{1, 4}, Seeding: DefaultSeeding()}
}

// Only names a part of bench resolver.
type Only string

// The parts.
const (
	OnlyCopy   Only = "copy"   // hits that are copied into the own arena
	OnlySerial Only = "serial" // objects one by one against a batch
)

// cols is the width of the benches' embeddings: 64 float32, so that 256 bytes are a row.
const cols = 64

// counting tells what a client asked of its Store.
type counting struct{ store.Store }

// stats are those of the client below; none of another.
func (c *counting) stats() (st ram.ClientStats) {
	if s, ok := c.Store.(interface{ Stats() ram.ClientStats }); ok {
		st = s.Stats()
	}
	return st
}

// calls returns how often the Store's process was asked something.
func (c *counting) calls() int64 { return int64(c.stats().Calls) }

// PutAll implements store.Batcher.
func (c *counting) PutAll(ctx context.Context, puts []store.Putting) []error {
	return c.Store.(store.Batcher).PutAll(ctx, puts)
}

// registrations returns how often memory was shown to the Store.
func (c *counting) registrations() int64 { return int64(c.stats().Shown) }

// NoneStored implements store.Excluder; it reaches no Store.
func (c *counting) NoneStored(keys []embedding.Key) bool {
	return c.Store.(store.Excluder).NoneStored(keys)
}

// largest is the most bytes that one request moves.
func (b StoreBench) largest() int {
	most := 0
	for _, size := range b.Sizes {
		for _, n := range b.Counts {
			most = max(most, size*n)
		}
	}
	return most
}

// quietLog drops what parts under measurement log.
var quietLog = slog.New(slog.DiscardHandler)

// sizeName is a size for people.
func sizeName(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%dMiB", n>>20)
	}
	return fmt.Sprintf("%dKiB", n>>10)
}
