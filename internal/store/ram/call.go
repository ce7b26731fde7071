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

	"afterimage/internal/store"
)

// lane is a bounded set of connections for one kind of call.
type lane struct {
	slots chan struct{} // one token per call in progress

	mu   sync.Mutex
	idle []*conn
}

func newLane(n int) *lane { return &lane{slots: make(chan struct{}, n)} }

// take returns an idle connection, or nil.
func (l *lane) take() *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.idle) == 0 {
		return nil
	}
	cn := l.idle[len(l.idle)-1]
	l.idle = l.idle[:len(l.idle)-1]
	return cn
}

// keep takes back a connection whose last reply was read to its end.
func (l *lane) keep(cn *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, cn)
}

// drop closes all idle connections.
func (l *lane) drop() {
	l.mu.Lock()
	idle := l.idle
	l.idle = nil
	l.mu.Unlock()
	for _, cn := range idle {
		cn.c.drop(cn, 0)
	}
}

// call runs fn on a connection of l. fn returns an error only if the connection is of no more use.
// An error of call wraps store.ErrUnavailable.
func (c *Client) call(ctx context.Context, l *lane, fn func(*conn) error) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.wg.Done()
	c.calls.Add(1)
	if err := ctx.Err(); err != nil {
		return c.unavailable(err)
	}
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return c.unavailable(ctx.Err())
	case <-c.ctx.Done():
		return c.unavailable(c.ctx.Err())
	}
	if err := c.breaker.allow(); err != nil {
		c.fastFails.Add(1)
		return c.unavailable(err)
	}
	if cn := l.take(); cn != nil {
		cn.answered = false
		err := c.run(ctx, l, cn, fn)
		if err == nil || cn.answered || !gone(err) || ctx.Err() != nil || c.ctx.Err() != nil {
			return c.settle(ctx, err)
		}
		// The Store went away while the connection lay idle, and has not begun to answer: its other
		// connections are dead as well, and one fresh attempt is safe, as no call is harmful twice.
		c.reads.drop()
		c.writes.drop()
	}
	return c.callFresh(ctx, l, fn)
}

// callFresh opens a connection for a call that the breaker allowed.
func (c *Client) callFresh(ctx context.Context, l *lane, fn func(*conn) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	nc, err := c.dial(ctx)
	if err != nil {
		if ctx.Err() == nil {
			c.breaker.trip(err)
		} else {
			c.breaker.release()
		}
		return c.unavailable(err)
	}
	cn := newConn(c, nc, c.cfg.Polls.Poll())
	return c.settle(ctx, c.run(ctx, l, cn, func(cn *conn) error {
		link, err := c.connected(ctx, nc)
		if err != nil {
			return err
		}
		if err := c.greet(cn, link); err != nil {
			return err
		}
		return fn(cn)
	}))
}

// dial opens a connection and checks who is at its other end.
func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.IOTimeout)
	defer cancel()
	nc, err := c.cfg.DialFunc(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(nc, processUID()); err != nil {
		nc.Close()
		return nil, err
	}
	c.dials.Add(1)
	tune(nc)
	return nc, nil
}

// run gives cn to fn, and back to l if it is still good. When ctx ends the connection is closed, not
// only woken: a reply to a call that nobody waits for must never reach the next one. Once run returns
// an error the connection is closed for the Store as well, which then commits nothing that it copied
// from the caller's memory.
func (c *Client) run(ctx context.Context, l *lane, cn *conn, fn func(*conn) error) error {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		cn.nc.Close()
	})
	err := cmp.Or(fn(cn), cn.limit.met())
	late := !stop()
	if late {
		<-closed
	}
	switch {
	case err != nil:
		c.drop(cn, cn.request)
	case late || cn.link != c.link.Load():
		c.drop(cn, 0) // good, but of no more use
	default:
		l.keep(cn)
		return nil
	}
	if err != nil || late {
		c.faults.Add(1)
	}
	return err
}

// drop closes a lane, and tells the Store which request of it, unless 0, was not answered.
func (c *Client) drop(cn *conn, request uint64) {
	cn.close()
	if cn.link != nil {
		cn.link.uncarry(cn.carried)
		cn.link.laneEnded(cn.lane, request)
	}
}

// settle tells the breaker how a call went, and gives its error a class.
func (c *Client) settle(ctx context.Context, err error) error {
	switch {
	case err == nil:
		c.breaker.succeed()
		return nil
	case c.ctx.Err() != nil, ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		c.breaker.release()
		return c.unavailable(ctx.Err())
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	c.breaker.fail(err)
	return c.unavailable(err)
}

// unavailable gives an error its class, and after Close says so rather than what broke by it.
func (c *Client) unavailable(err error) error {
	if c.ctx.Err() != nil {
		return fmt.Errorf("%w: client closed", store.ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// gone tells a connection that the other side closed from one that is late or talks nonsense.
func gone(err error) bool {
	return !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, errProtocol)
}
