// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"afterimage/internal/arena"
	"afterimage/internal/store"
)

var errClosed = errors.New("the client is closed")

// Client is a store.Store in a Mooncake cluster.
type Client struct {
	cfg     Config
	arena   *arena.Arena
	win     *window
	away    outage
	breaker breaker
	held    quarantine
	wary    distrust
	doomed  doomed
	count   counters

	ctx   context.Context // ends with Close, or when the client gives up for good
	stop  context.CancelCauseFunc
	bg    sync.WaitGroup // the heart and what it starts
	calls sync.WaitGroup // calls in progress; Add under mu

	term atomic.Pointer[term] // by which calls that begin have to end; nil before the first

	mute atomic.Bool // no heartbeats, for tests

	turn    chan struct{} // held by whoever changes sessions; guards the fields below
	rotated time.Time
	stuck   time.Time // since when too much is in doubt; zero while it is not

	mu     sync.Mutex // guards the fields below
	closed bool
	link   *link      // nil while mooncake_client is away
	sess   *session   // of link; nil without one
	old    []*session // earlier ones, whose mappings may still exist
	cause  error      // why link is nil
	joined chan struct{}
}

var _ store.Store = (*Client)(nil)

// Open returns a client whose objects are read into, and written from, a. It tries to reach the
// mooncake_client until ctx ends at the latest; one that is not there is waited for in the background,
// and calls are ErrUnavailable meanwhile. Open fails where waiting cannot help: a setting, or a
// mooncake_client of a release that is not known.
//
// The caller closes the client before the arena.
func Open(ctx context.Context, cfg Config, a *arena.Arena) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if a == nil {
		return nil, errors.New("mooncake: no arena: objects are transferred from and to one")
	}
	w, err := openWindow(a)
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg.withDefaults(), arena: a, win: w, turn: make(chan struct{}, 1), joined: make(chan struct{})}
	c.away.log, c.away.quiet = c.cfg.Logger, c.cfg.ClientTTL
	c.breaker.away = &c.away
	c.held.arena, c.held.away, c.held.quiet = a, &c.away, c.cfg.ClientTTL
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	l, err := c.join(ctx)
	var release *errRelease
	if errors.As(err, &release) {
		return nil, errors.Join(fmt.Errorf("mooncake: %s: %w", c.cfg.Addr, err), w.close())
	}
	if err != nil {
		c.warnAway(err)
	}
	c.bg.Go(func() { c.run(l) })
	return c, nil
}

// warnAway says why there is no connection at first, and how to get one.
func (c *Client) warnAway(cause error) {
	args := []any{"addr", c.cfg.Addr, "cause", cause}
	if errors.Is(cause, unix.ECONNREFUSED) {
		args = append(args, "mend", "name the address of mooncake_client, or start it: "+c.cfg.StartCommand)
	}
	c.away.begin(unconnected, msgNoConnection, args...)
}

// Wait blocks until a mooncake_client is there and has the arena, or ctx ends.
func (c *Client) Wait(ctx context.Context) error {
	c.mu.Lock()
	joined := c.joined
	c.mu.Unlock()
	select {
	case <-joined:
		return nil
	case <-c.ctx.Done():
		return c.unavailable(context.Cause(c.ctx))
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		return fmt.Errorf("%w: %w", c.unavailable(c.cause), context.Cause(ctx))
	}
}

// Dead is closed when the client is closed, or gave up for good: memory that is in doubt cannot be had
// back. The worker turns unready then, drains by encoding and is restarted. Err says why.
func (c *Client) Dead() <-chan struct{} { return c.ctx.Done() }

// Err returns why the client is of no use any more, or nil.
func (c *Client) Err() error { return context.Cause(c.ctx) }

// Capabilities implements store.Store.
func (c *Client) Capabilities() store.Capabilities {
	return store.Capabilities{Name: "mooncake", Remote: true, SoftPin: true, Unsized: true, Tells: true}
}

// Events implements store.Store. A mooncake_client tells of no changes: see Watch.
func (c *Client) Events(context.Context) <-chan store.Event { return nil }

// unavailable gives cause its class.
func (c *Client) unavailable(cause error) error {
	return fmt.Errorf("mooncake: %w: %w", store.ErrUnavailable, cause)
}

// enter begins a call: it refuses it, or returns the connections and the session to use. leave must
// follow when it returned no error.
func (c *Client) enter(ctx context.Context) (*link, *session, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, nil, c.unavailable(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, nil, c.unavailable(errClosed)
	case c.ctx.Err() != nil:
		return nil, nil, c.unavailable(context.Cause(c.ctx))
	case c.link == nil:
		return nil, nil, c.unavailable(c.cause)
	}
	if err := c.breaker.open(); err != nil {
		return nil, nil, c.unavailable(err)
	}
	c.calls.Add(1)
	return c.link, c.sess, nil
}

func (c *Client) leave() { c.calls.Done() }

// current returns the connections and the session in use; nil while mooncake_client is away.
func (c *Client) current() (*link, *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link, c.sess
}

// Close refuses further calls, waits for those in progress, withdraws the arena from mooncake_client
// and disconnects. It fails when ranges are still in doubt after Config.CloseTimeout: they stay in the
// arena's quarantine then, which needs Detach instead of Close.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.CloseTimeout)
	defer cancel()

	drained := make(chan struct{})
	go func() {
		c.calls.Wait()
		close(drained)
	}()
	half, stop := context.WithTimeout(ctx, c.cfg.CloseTimeout/2)
	defer stop()
	select {
	case <-drained:
	case <-half.Done():
	}
	c.stop(errClosed) // calls that still run end here, unconfirmed
	<-drained
	c.withdraw(ctx)
	if l := c.part(errClosed); l != nil {
		l.close()
	}
	c.bg.Wait()
	c.settleDead()
	bytes, ranges, _ := c.held.size()
	if ranges > 0 {
		return fmt.Errorf("mooncake: %d ranges of %d bytes are still in doubt: mooncake_client has not confirmed in %v that it let go",
			ranges, bytes, c.cfg.CloseTimeout)
	}
	return c.win.close()
}

// part gives the connections and their session up, and returns the connections for closing.
func (c *Client) part(cause error) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.link
	c.link, c.cause = nil, cause
	if c.sess != nil {
		c.old = append(c.old, c.sess)
		c.sess = nil
	}
	if l != nil {
		c.joined = make(chan struct{})
	}
	return l
}
