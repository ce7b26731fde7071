// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/store"
)

// OpStats counts one operation since start.
type OpStats struct {
	Calls       uint64        `json:"calls"`
	OK          uint64        `json:"ok"` // items, likewise below
	Misses      uint64        `json:"misses"`
	Rejected    uint64        `json:"rejected"`
	Unavailable uint64        `json:"unavailable"`
	Unconfirmed uint64        `json:"unconfirmed"`
	Bytes       uint64        `json:"bytes"` // of items that went well
	Time        time.Duration `json:"time"`  // of all calls together
}

// Stats is a snapshot of a Client. Counts are since start.
type Stats struct {
	Connected   bool   `json:"connected"`
	Release     string `json:"release"` // of the PUT layout; empty while not connected
	BreakerOpen bool   `json:"breaker_open"`
	Breaks      uint64 `json:"breaks"`     // times that the breaker opened
	Reconnects  uint64 `json:"reconnects"` // connections lost
	Rotations   uint64 `json:"rotations"`  // further identities of the arena
	Abandoned   uint64 `json:"abandoned"`  // transfers that were not waited for to the end

	QuarantineBytes  int64  `json:"quarantine_bytes"`
	QuarantineLimit  int64  `json:"quarantine_limit_bytes"`
	QuarantineRanges int    `json:"quarantine_ranges"`
	Quarantined      uint64 `json:"quarantined"` // ranges, ever
	Distrusted       int    `json:"distrusted"`  // keys
	Doomed           int    `json:"doomed"`      // keys whose removal waits for readers

	Exists, Get, Put, Remove OpStats
	Codes                    map[int32]uint64 `json:"codes"` // answers for single keys, by ErrorCode
}

// Stats returns the state at this moment.
func (c *Client) Stats() Stats {
	l, _ := c.current()
	st := Stats{
		Connected: l != nil, BreakerOpen: c.breaker.open() != nil, Breaks: c.breaker.tripped(),
		Reconnects: c.count.reconnects.Load(), Rotations: c.count.rotations.Load(), Abandoned: c.count.abandoned.Load(),
		QuarantineLimit: c.win.bytes / limitShare, Quarantined: c.held.everHeld(),
		Distrusted: c.wary.size(), Doomed: c.doomed.size(),
		Exists: c.count.exists.stats(), Get: c.count.get.stats(), Put: c.count.put.stats(), Remove: c.count.remove.stats(),
	}
	if l != nil {
		st.Release = l.layout.release
	}
	st.QuarantineBytes, st.QuarantineRanges, _ = c.held.size()
	c.count.mu.Lock()
	defer c.count.mu.Unlock()
	st.Codes = maps.Clone(c.count.codes)
	return st
}

// counters is what Stats is made of.
type counters struct {
	reconnects, rotations, abandoned atomic.Uint64
	exists, get, put, remove         opCount

	mu    sync.Mutex // guards codes
	codes map[int32]uint64
}

func (n *counters) code(c code) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.codes == nil {
		n.codes = map[int32]uint64{}
	}
	n.codes[int32(c)]++
}

type opCount struct {
	mu sync.Mutex // guards st
	st OpStats
}

// call counts a call that began at start.
func (o *opCount) call(start time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.st.Calls++
	o.st.Time += time.Since(start)
}

// item counts the outcome of one key. buf may be nil.
func (o *opCount) item(err error, buf *arena.Buf) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.st.OK++
		if buf != nil {
			o.st.Bytes += uint64(buf.Len())
		}
	case errors.Is(err, store.ErrMiss):
		o.st.Misses++
	case errors.Is(err, store.ErrRejected):
		o.st.Rejected++
	case errors.Is(err, store.ErrUnavailable):
		o.st.Unavailable++
	case errors.Is(err, store.ErrUnconfirmed):
		o.st.Unconfirmed++
	}
}

func (o *opCount) stats() OpStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.st
}

func (d *doomed) size() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.since)
}
