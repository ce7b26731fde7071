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
	// DialFunc replaces the unix socket, for tests.
	DialFunc func(context.Context) (net.Conn, error)
}

func (c ClientConfig) withDefaults() (ClientConfig, error) {
	c.ReadConns = cmp.Or(c.ReadConns, 4)
	c.WriteConns = cmp.Or(c.WriteConns, 2)
	c.IOTimeout = cmp.Or(c.IOTimeout, 5*time.Second)
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
	reads   *lane
	writes  *lane

	ctx  context.Context // ends with Close
	stop context.CancelFunc

	mu     sync.Mutex // guards closed and wg.Add
	closed bool
	wg     sync.WaitGroup // calls and event streams

	nextID    atomic.Uint64
	maxPut    atomic.Int64  // as the last hello said
	epoch     atomic.Uint64 // likewise
	restarts  atomic.Uint64 // changes of epoch seen
	dials     atomic.Uint64 // connections opened
	faults    atomic.Uint64 // connections closed for an error
	fastFails atomic.Uint64 // calls that the breaker answered
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
		breaker: breaker{min: cfg.MinBackoff, max: cfg.MaxBackoff},
		reads:   newLane(cfg.ReadConns),
		writes:  newLane(cfg.WriteConns),
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	_ = c.call(ctx, c.reads, func(*conn) error { return nil })
	return c, nil
}

// Exists implements store.Store.
func (c *Client) Exists(ctx context.Context, keys []embedding.Key) ([]store.State, error) {
	states := make([]store.State, len(keys))
	for from := 0; from < len(keys); from += maxBatch {
		to := min(from+maxBatch, len(keys))
		if err := checkKeys(keys[from:to]); err != nil {
			return nil, err
		}
		err := c.call(ctx, c.reads, func(cn *conn) error {
			return cn.exists(keys[from:to], states[from:to])
		})
		if err != nil {
			return nil, err
		}
	}
	return states, nil
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

// Get implements store.Store. Room in the arena is taken when an object's size is known and before
// its bytes are read; an object for which there is none is rejected.
func (c *Client) Get(ctx context.Context, wants []store.Want) []store.Got {
	gots := make([]store.Got, len(wants))
	for from := 0; from < len(wants); from += maxBatch {
		to := min(from+maxBatch, len(wants))
		c.getBatch(ctx, wants[from:to], gots[from:to])
	}
	return gots
}

func (c *Client) getBatch(ctx context.Context, wants []store.Want, gots []store.Got) {
	refuse := func(err error) {
		for i := range gots {
			if gots[i].Buf == nil && gots[i].Err == nil {
				gots[i].Err = err
			}
		}
	}
	if c.cfg.Arena == nil {
		refuse(fmt.Errorf("%w: this client has no arena to read into", store.ErrRejected))
		return
	}
	for _, w := range wants {
		if err := checkKey(w.Key); err != nil {
			refuse(fmt.Errorf("%w: %w", store.ErrRejected, err))
			return
		}
	}
	if err := c.call(ctx, c.reads, func(cn *conn) error { return cn.get(c.cfg.Arena, wants, gots) }); err != nil {
		refuse(err)
	}
}

// Put implements store.Store. It is rejected, before any byte of buf is sent, when the Store has no
// room.
func (c *Client) Put(ctx context.Context, key embedding.Key, buf *arena.Buf, opts store.PutOptions) error {
	if err := checkKey(key); err != nil {
		return fmt.Errorf("%w: %w", store.ErrRejected, err)
	}
	if len(opts.Tenant) > maxTenantBytes {
		return fmt.Errorf("%w: tenant of %d bytes, limit %d", store.ErrRejected, len(opts.Tenant), maxTenantBytes)
	}
	var refused error
	err := c.call(ctx, c.writes, func(cn *conn) (err error) {
		refused, err = cn.put(key, buf.Bytes(), opts)
		return err
	})
	return cmp.Or(err, refused)
}

// Capabilities implements store.Store. MaxPut is 0 until the Store has been reached.
func (c *Client) Capabilities() store.Capabilities {
	return store.Capabilities{Name: "ram", Events: true, MaxPut: c.maxPut.Load()}
}

// Close implements store.Store. Calls in progress end with store.ErrUnavailable, and later ones fail.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.wg.Wait()
	c.reads.drop()
	c.writes.drop()
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

// greet says hello on a fresh connection and takes note of the Store's epoch.
func (c *Client) greet(cn *conn) error {
	h, err := cn.hello(os.Getpid())
	if err != nil {
		return err
	}
	c.maxPut.Store(h.maxObject)
	if old := c.epoch.Swap(h.epoch); old != 0 && old != h.epoch {
		c.restarts.Add(1)
	}
	return nil
}

// ClientStats is a snapshot of a Client. Counts are since Dial.
type ClientStats struct {
	Dials     uint64 // connections opened
	Faults    uint64 // connections closed for an error or a cancelled call
	FastFails uint64 // calls refused because the Store was away a moment before
	Restarts  uint64 // times that the Store came back empty
	Open      bool   // calls are being refused
}

// Stats returns the state at this moment.
func (c *Client) Stats() ClientStats {
	return ClientStats{Dials: c.dials.Load(), Faults: c.faults.Load(), FastFails: c.fastFails.Load(),
		Restarts: c.restarts.Load(), Open: c.breaker.open()}
}
