// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/fdpass"
	"afterimage/internal/quick"
	"afterimage/internal/store"
)

// ClientConfig sets up a client. Zero values mean the default, which each field names.
type ClientConfig struct {
	// Path is the unix socket of the Server. Required unless DialFunc is set.
	Path string
	// Arena is what objects are read into. Without one, every Get is rejected.
	Arena *arena.Arena
	// ReadConns and WriteConns bound the calls that run at once; further ones wait. 4 and 2.
	ReadConns, WriteConns int
	// IOTimeout bounds each step of a call (a reply, one object of a batch), not counting 1 s per
	// 32 MiB; 5 s.
	IOTimeout time.Duration
	// MinBackoff and MaxBackoff bound the pauses between attempts to reach a Store that is away;
	// 50 ms and 2 s. During a pause calls fail at once.
	MinBackoff, MaxBackoff time.Duration
	// Copy has Get copy objects out of the Store's memory into Arena, so that nothing is on loan when it
	// returns.
	Copy bool
	// Stream has objects sent through the socket both ways, as where memory cannot be shown.
	Stream bool
	// Polls says how long a call looks for its answer before it sleeps; quick.DefaultBudget.
	Polls *quick.Policy
	// DialFunc replaces the unix socket, for tests.
	DialFunc func(context.Context) (net.Conn, error)
}

func (c ClientConfig) withDefaults() (ClientConfig, error) {
	c.ReadConns = cmp.Or(c.ReadConns, 4)
	c.WriteConns = cmp.Or(c.WriteConns, 2)
	c.IOTimeout = cmp.Or(c.IOTimeout, 5*time.Second)
	if c.Polls == nil {
		c.Polls = quick.NewPolicy(quick.DefaultBudget)
	}
	c.MinBackoff = cmp.Or(c.MinBackoff, 50*time.Millisecond)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, 2*time.Second)
	switch {
	case c.Path == "" && c.DialFunc == nil:
		return c, errors.New("ram: client without a socket path")
	case len(c.Path) > maxPathBytes:
		return c, fmt.Errorf("ram: socket path %q has %d bytes, limit %d: use a shorter directory", c.Path, len(c.Path), maxPathBytes)
	case c.ReadConns < 0 || c.WriteConns < 0:
		return c, fmt.Errorf("ram: %d read and %d write connections, want more than 0", c.ReadConns, c.WriteConns)
	case c.IOTimeout < 0 || c.MinBackoff < 0 || c.MaxBackoff < c.MinBackoff:
		return c, fmt.Errorf("ram: IOTimeout %v, back-off %v to %v: want positive and in order", c.IOTimeout, c.MinBackoff, c.MaxBackoff)
	}
	if c.DialFunc == nil {
		path := c.Path
		c.DialFunc = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}
	}
	return c, nil
}

// Client is a store.Store that speaks to a Server.
type Client struct {
	cfg     ClientConfig
	breaker breaker
	watch   *watch
	reads   *lane
	writes  *lane

	ctx  context.Context // ends with Close
	stop context.CancelFunc

	mu     sync.Mutex // guards closed and wg.Add
	closed bool
	wg     sync.WaitGroup // calls and event streams

	link     atomic.Pointer[link] // in use for new calls; nil while there is none
	linking  chan struct{}        // holds a token while somebody makes the link
	linkless atomic.Uint64        // epoch of a Store that lends nothing

	nextID    atomic.Uint64
	maxPut    atomic.Int64  // as the last hello said
	epoch     atomic.Uint64 // likewise
	restarts  atomic.Uint64 // changes of epoch seen
	dials     atomic.Uint64 // connections opened
	shown     atomic.Uint64 // times that memory was exchanged
	faults    atomic.Uint64 // connections closed for an error
	fastFails atomic.Uint64 // calls that the breaker answered
	skipped   atomic.Uint64 // keys that the sketch answered
	calls     atomic.Uint64 // made of the Store's process
	pinned    atomic.Uint64 // objects got without one
	recalls   atomic.Uint64 // loans that the Store asked back
}

var _ store.Store = (*Client)(nil)

// Dial returns a client. It tries to reach the Server once, until ctx ends at the latest; a Server
// that is not there is no error: calls fail with store.ErrUnavailable until it is.
func Dial(ctx context.Context, cfg ClientConfig) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{
		cfg:     cfg,
		watch:   newWatch(cfg.IOTimeout),
		breaker: breaker{min: cfg.MinBackoff, max: cfg.MaxBackoff},
		reads:   newLane(cfg.ReadConns),
		writes:  newLane(cfg.WriteConns),
		linking: make(chan struct{}, 1),
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	_ = c.call(ctx, c.reads, func(*conn) error { return nil })
	return c, nil
}

// Remove implements store.Store.
func (c *Client) Remove(ctx context.Context, keys []embedding.Key) error {
	for from := 0; from < len(keys); from += maxBatch {
		part := keys[from:min(from+maxBatch, len(keys))]
		if err := checkKeys(part); err != nil {
			return err
		}
		if err := c.call(ctx, c.reads, func(cn *conn) error { return cn.remove(part) }); err != nil {
			return err
		}
	}
	return nil
}

// checkKeys refuses what the server would cut the connection for.
func checkKeys(keys []embedding.Key) error {
	for _, k := range keys {
		if err := checkKey(k); err != nil {
			return fmt.Errorf("%w: %w", store.ErrRejected, err)
		}
	}
	return nil
}

// Capabilities implements store.Store. MaxPut is 0 until the Store has been reached.
func (c *Client) Capabilities() store.Capabilities {
	return store.Capabilities{Name: "ram", Tenants: true, TTL: true, SoftPin: true, Events: true,
		Lends: c.link.Load() != nil, MaxPut: c.maxPut.Load()}
}

// Close implements store.Store. Calls in progress end with store.ErrUnavailable, and later ones fail.
// Bufs on loan stay good; the last one that is released ends the connection that they belong to.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.watch.cut()
	c.wg.Wait()
	c.reads.drop()
	c.writes.drop()
	if l := c.link.Swap(nil); l != nil && l.leave() {
		<-l.gone
	}
	return nil
}

// begin counts a call or stream, which must call c.wg.Done.
func (c *Client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("%w: client closed", store.ErrUnavailable)
	}
	c.wg.Add(1)
	return nil
}

// greet says hello on a fresh connection, joins the link if there is one, and takes note of the
// Store's epoch.
func (c *Client) greet(cn *conn, l *link) error {
	a := ask{pid: uint32(os.Getpid()), lane: c.nextID.Add(1)}
	if l != nil {
		a.link = l.id
	}
	g, err := cn.hello(a, nil)
	if err != nil {
		return err
	}
	fdpass.CloseAll(cn.src.take(0))
	c.noteEpoch(g)
	if l != nil && g.flags&flagLink != 0 {
		cn.link, cn.lane = l, a.lane
	} else if l != nil {
		c.lose(l) // of another Store than the one that answered
	}
	return nil
}

func (c *Client) noteEpoch(g greeting) {
	c.maxPut.Store(g.maxObject)
	if old := c.epoch.Swap(g.epoch); old != 0 && old != g.epoch {
		c.restarts.Add(1)
	}
}

// ClientStats is a snapshot of a Client. Counts are since Dial.
type ClientStats struct {
	Dials     uint64 // connections opened
	Shown     uint64 // times that this process and a Store showed each other their memory
	Faults    uint64 // connections closed for an error or a cancelled call
	FastFails uint64 // calls refused because the Store was away a moment before
	Restarts  uint64 // times that the Store came back empty
	Open      bool   // calls are being refused
	Loans     int    // objects in the Store's memory that this process holds
	LoanBytes int64  // their sizes
	Recalls   uint64 // loans that the Store asked back
	Skipped   uint64 // keys known to be absent without asking
	Calls     uint64 // times that the Store was asked something
	Pinned    uint64 // objects got without asking
}

// Stats returns the state at this moment.
func (c *Client) Stats() ClientStats {
	st := ClientStats{Dials: c.dials.Load(), Shown: c.shown.Load(), Faults: c.faults.Load(), FastFails: c.fastFails.Load(),
		Restarts: c.restarts.Load(), Open: c.breaker.open(), Recalls: c.recalls.Load(), Skipped: c.skipped.Load(),
		Calls: c.calls.Load(), Pinned: c.pinned.Load()}
	if l := c.link.Load(); l != nil {
		st.Loans, st.LoanBytes = l.held()
	}
	return st
}
