// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// beat is how often the heart pings. The server drops a mapping 10 s after the last ping.
	beat = time.Second
	// beatTimeout is when a mooncake_client that does not answer counts as stuck.
	beatTimeout = 3 * time.Second
	// trialTimeout bounds the trial calls of an open breaker; a dead master costs 4.4 s.
	trialTimeout = 6 * time.Second
	// dialTimeout bounds the steps of a connection that only mooncake_client itself can delay.
	dialTimeout = 3 * time.Second
)

var errMasterAway = errors.New("mooncake_client has lost its master")

// run keeps the client connected until it closes. l is the first connection, or nil. Pauses between
// attempts double, and begin anew after each connection that came about.
func (c *Client) run(l *link) {
	pause := c.cfg.MinBackoff
	last, told := "", "" // what keeps the client away, beside that nobody listens
	for c.ctx.Err() == nil {
		if l == nil {
			c.upkeep(nil)
			t := time.NewTimer(pause)
			select {
			case <-t.C:
			case <-c.ctx.Done():
				t.Stop()
				return
			}
			pause = min(2*pause, c.cfg.MaxBackoff)
			var err error
			if l, err = c.join(c.ctx); err != nil {
				if errors.Is(err, unix.ECONNREFUSED) || c.ctx.Err() != nil {
					continue
				}
				// What happens once is of a mooncake_client that is starting, or ending.
				if text := err.Error(); text == last && text != told {
					told = text
					c.cfg.Logger.Warn("mooncake: cannot join", "addr", c.cfg.Addr, "cause", err)
				} else {
					last = text
				}
				continue
			}
			last, told = "", ""
			c.away.over(unconnected, "addr", c.cfg.Addr, "release", l.layout.release)
		}
		pause = c.cfg.MinBackoff
		c.serve(l)
		l = nil
	}
}

// join connects, hands the arena over under an identity of its own, and lets calls in. Until then they
// fail with what went wrong last.
func (c *Client) join(ctx context.Context) (*link, error) {
	l, s, err := c.tryJoin(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.cause = err
		return nil, err
	}
	if c.closed {
		l.close()
		s.proc.close() // it forgets the mapping without pings, and nothing was ever sent under it
		return nil, errClosed
	}
	c.link, c.sess, c.cause = l, s, nil
	close(c.joined)
	return l, nil
}

func (c *Client) tryJoin(ctx context.Context) (*link, *session, error) {
	dialing, cancel := timeout(ctx, dialTimeout)
	defer cancel()
	l, err := dialLink(dialing, c.cfg)
	if err != nil {
		return nil, nil, err
	}
	registering, cancel := timeout(ctx, c.cfg.RegisterTimeout)
	defer cancel()
	s, err := l.openSession(registering, c.cfg, c.win)
	if err != nil {
		l.close()
		return nil, nil, err
	}
	return l, s, nil
}

// serve beats until l fails or the client closes.
func (c *Client) serve(l *link) {
	t := time.NewTicker(beat)
	defer t.Stop()
	trial := make(chan struct{}, 1) // one trial and one upkeep at a time
	upkeep := make(chan struct{}, 1)
	for c.pulse(l) {
		if c.breaker.open() != nil {
			c.once(trial, func() { c.try(l) })
		}
		c.once(upkeep, func() { c.upkeep(l) })
		select {
		case <-t.C:
			continue
		case <-l.down:
		case <-c.ctx.Done():
			return // Close still needs the connections
		}
		break
	}
	if c.ctx.Err() != nil {
		return
	}
	// First nobody may find the connections, then they go: a call that finds none is merely unavailable,
	// one that is cut leaves memory in doubt.
	c.part(l.cause)
	c.count.reconnects.Add(1)
	c.away.begin(unconnected, msgAway, "addr", c.cfg.Addr, "cause", l.cause)
	l.close()
}

// once runs f in the background unless it runs already.
func (c *Client) once(busy chan struct{}, f func()) {
	select {
	case busy <- struct{}{}:
		c.bg.Go(func() {
			defer func() { <-busy }()
			f()
		})
	default:
	}
}

// pulse pings once. It reports whether l is of use. A ping that is late opens the breaker but keeps the
// connections: a process that merely stood still goes on with them, and answers what it owes.
func (c *Client) pulse(l *link) bool {
	ctx, cancel := timeout(c.ctx, beatTimeout)
	defer cancel()
	began := time.Now()
	_, s := c.current()
	if s == nil || c.mute.Load() { // without a session, Close is under way
		return true
	}
	serving, err := l.ping.ping(ctx, s.id)
	select {
	case <-l.down:
		return false
	default:
	}
	switch {
	case c.ctx.Err() != nil:
	case err != nil:
		c.breaker.trip(began, fmt.Errorf("heartbeat of mooncake_client: %w", err))
	case !serving:
		c.breaker.trip(began, errMasterAway)
	}
	return true
}

// try makes the trial call of an open breaker: one real question to the master.
func (c *Client) try(l *link) {
	ctx, cancel := timeout(c.ctx, trialTimeout)
	defer cancel()
	if _, s := c.current(); s == nil {
		return
	} else if serving, err := l.ping.ping(ctx, s.id); err != nil || !serving {
		return
	}
	// On a connection for writes: with a dead master it takes seconds, which no read shall wait for.
	rs, err := l.write().exist(ctx, []string{"afterimage-trial"})
	if err == nil && (rs[0].code == codeOK || rs[0].code == codeNotFound) {
		c.breaker.reset()
	}
}
