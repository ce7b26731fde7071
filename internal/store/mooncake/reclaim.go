// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// settleDelay is how long a range is held before a rotation fetches it back: answers that are
	// merely late come by themselves.
	settleDelay = time.Second
	// rotatePause keeps rotations apart. Each waits for all transfers of the host.
	rotatePause = 5 * time.Second
	// unmapTimeout bounds the withdrawal of a mapping, which waits for the transfers that run: at most
	// 60 s, when the server gives one up.
	unmapTimeout = 65 * time.Second
)

// Fractions of the arena in quarantine: at the first, ranges are fetched back at once; at the second,
// no further transfer starts.
const (
	urgentShare = 8
	limitShare  = 4
)

// upkeep brings quarantined ranges back, and retries removals. The heart calls it once a second, and
// without connections while there are none.
func (c *Client) upkeep(l *link) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.wary.expire()
	c.away.look()
	c.held.look()
	if l != nil {
		c.retryRemovals(l)
		if c.shouldRotate() {
			c.rotateLocked(l)
		}
	}
	c.settleOldLocked(c.ctx, l)
	c.giveUpLocked()
}

// giveUpLocked closes the client for good when too much of the arena has been in doubt for too long.
func (c *Client) giveUpLocked() {
	bytes, _, _ := c.held.size()
	switch {
	case bytes <= c.win.bytes/limitShare:
		c.stuck = time.Time{}
	case c.stuck.IsZero():
		c.stuck = time.Now()
	case time.Since(c.stuck) > c.cfg.GiveUpTimeout:
		err := fmt.Errorf("%d of %d bytes of the arena are in doubt for %v and mooncake_client does not let go of them",
			bytes, c.win.bytes, time.Since(c.stuck).Round(time.Second))
		c.cfg.Logger.Error("mooncake: closed for good: restart this worker", "cause", err)
		c.stop(err)
	}
}

// shouldRotate says whether the ranges of the current session are to be fetched back.
func (c *Client) shouldRotate() bool {
	_, s := c.current()
	if !c.held.holds(s) {
		return false
	}
	bytes, _, last := c.held.size()
	if bytes > c.win.bytes/urgentShare {
		return true
	}
	return time.Since(last) > settleDelay && time.Since(c.rotated) > rotatePause
}

// rotateLocked gives the arena a further identity, which calls use from here on. The one before joins
// the old ones. Calls go on meanwhile.
func (c *Client) rotateLocked(l *link) bool {
	c.rotated = time.Now()
	ctx, cancel := timeout(c.ctx, c.cfg.RegisterTimeout)
	defer cancel()
	s, err := l.openSession(ctx, c.cfg, c.win)
	if err != nil {
		if c.ctx.Err() == nil {
			c.away.tell("mooncake: no further identity for the arena", "cause", err)
		}
		return false
	}
	// The switch comes after the registration, so that there is no moment without a mapping.
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != l { // lost meanwhile; the process forgets the mapping without pings
		c.old = append(c.old, s)
		return false
	}
	c.old = append(c.old, c.sess)
	c.sess = s
	c.count.rotations.Add(1)
	return true
}

// lostMapping is called when every key of a call under s was refused. It reports whether the call may
// be repeated: s had lost its mapping, for lack of pings, and there is another one.
func (c *Client) lostMapping(ctx context.Context, l *link, s *session) bool {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	if mapped, err := l.read().mapped(ctx, c.win.base, s.id); err != nil || mapped {
		return false // the call was wrong by itself
	}
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-c.turn }()
	if nl, ns := c.current(); nl != l || ns != s {
		return nl != nil // another call was here first
	}
	c.away.tell("mooncake: mooncake_client dropped the arena; handing it over again")
	return c.rotateLocked(l)
}

// settleOldLocked withdraws the mappings of earlier sessions and gives back what they hold.
func (c *Client) settleOldLocked(ctx context.Context, l *link) {
	c.mu.Lock()
	old := slices.Clone(c.old)
	c.mu.Unlock()
	for _, s := range old {
		if err := c.withdrawOne(ctx, l, s); err == nil {
			c.settleLocked(s)
		} else if ctx.Err() == nil && !s.warned && c.held.holds(s) {
			s.warned = true
			c.away.tell("mooncake: a mapping of the arena is not withdrawn yet", "cause", err)
		}
	}
}

// settleLocked gives back what s holds and forgets it.
func (c *Client) settleLocked(s *session) {
	if bytes := c.held.settle(s); bytes > 0 {
		c.cfg.Logger.Debug("mooncake: a mapping is withdrawn, and what was in doubt is back", "bytes", bytes)
	}
	c.mu.Lock()
	c.old = slices.DeleteFunc(c.old, func(o *session) bool { return o == s })
	c.mu.Unlock()
	s.proc.close()
}

// withdrawOne makes sure that no mapping of s exists any more.
func (c *Client) withdrawOne(ctx context.Context, l *link, s *session) error {
	if s.proc.dead() {
		return nil
	}
	if l == nil || !l.serves(s) {
		return errors.New("the mooncake_client that has it is away, and not known to be dead")
	}
	// On a connection for writes: it waits for transfers, which no read shall.
	ctx, cancel := timeout(ctx, unmapTimeout)
	defer cancel()
	r, err := l.write().unmap(ctx, s.id)
	if err == nil && r.code == codeOK {
		return nil
	}
	// An identity that expired cannot be withdrawn. One whose process is gone is dead above.
	if err == nil {
		mapped, err := l.read().mapped(ctx, c.win.base, s.id)
		if err == nil && !mapped {
			return nil
		}
		return fmt.Errorf("unmap: %v (mapped: %v, %v)", r.code, mapped, err)
	}
	if s.proc.dead() {
		return nil
	}
	return err
}

// politeTimeout bounds the withdrawal of a mapping that nothing depends on; without pings the server
// drops it by itself.
const politeTimeout = 2 * time.Second

// withdraw ends all sessions, for Close.
func (c *Client) withdraw(ctx context.Context) {
	if _, ranges, _ := c.held.size(); ranges == 0 {
		var cancel context.CancelFunc
		ctx, cancel = timeout(ctx, politeTimeout)
		defer cancel()
	}
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-c.turn }()
	c.mu.Lock()
	if c.sess != nil {
		c.old = append(c.old, c.sess)
		c.sess = nil
	}
	l := c.link
	c.mu.Unlock()
	c.settleOldLocked(ctx, l)
}

// settleDead gives back what the sessions of dead processes hold. Close calls it last, when nothing
// else runs any more.
func (c *Client) settleDead() {
	for _, s := range slices.Clone(c.old) {
		if s.proc.dead() {
			c.settleLocked(s)
		} else {
			s.proc.close()
		}
	}
}
