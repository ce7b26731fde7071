// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// The pause before a dial after n failures in a row is firstPause * 2^(n-1), at most maxPause: long
// enough not to flood a worker that restarts, short enough not to outlast its start.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// peer is one address. Its fields are guarded by sender.mu.
type peer struct {
	link      *link    // nil when there is no usable connection
	dialling  *dialing // nil when no dial is under way
	failures  int      // dials that failed since the last that did not
	notBefore time.Time
}

// dialing is a dial that any number of Sends wait for. It does not end with any of them.
type dialing struct {
	done chan struct{} // closed when the fields below are set
	link *link
	err  error // wraps ErrPeer or ErrRefused
}

// connect returns the connection to address, dialling when there is none.
func (s *sender) connect(ctx context.Context, address string) (*link, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: %w", ErrPeer, ErrClosed)
	}
	p := s.peers[address]
	if p == nil {
		p = new(peer)
		s.peers[address] = p
	}
	if l := p.link; l != nil {
		s.mu.Unlock()
		return l, nil
	}
	// One dial at a time: Sends that come meanwhile share its outcome, and its failure is one failure.
	d := p.dialling
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		p.dialling = d
		pause := time.Until(p.notBefore)
		s.wg.Go(func() { s.dial(p, d, address, pause) })
	}
	s.mu.Unlock()

	select {
	case <-d.done:
		return d.link, d.err
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a connection: %w", context.Cause(ctx))
	}
}

// dial waits out the pause, connects, and tells everyone who waits for d.
func (s *sender) dial(p *peer, d *dialing, address string, pause time.Duration) {
	l, err := s.open(address, pause)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(d.done)
	p.dialling = nil
	if err == nil && s.closed { // Close has looked for links and would miss this one
		l.nc.Close()
		err = ErrClosed
	}
	if err != nil {
		p.failures++
		p.notBefore = time.Now().Add(backoff(p.failures))
		if !errors.Is(err, ErrRefused) {
			err = fmt.Errorf("%w: %w", ErrPeer, err)
		}
		d.err = err
		return
	}
	p.failures = 0
	p.link, d.link = l, l
	s.links[l] = struct{}{}
	s.m.conns.WithLabelValues(sideSender).Inc()
	s.wg.Go(l.read)
	s.wg.Go(l.pump)
	s.wg.Go(l.keepHouse)
}

// backoff returns the pause after n failures in a row.
func backoff(n int) time.Duration {
	return min(firstPause<<min(n-1, 10), maxPause)
}

// open dials address and exchanges hellos. If the receiver turns out to run on this host, it goes on to
// the socket where loans are taken.
func (s *sender) open(address string, pause time.Duration) (*link, error) {
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
			return nil, ErrClosed
		}
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.DialTimeout)
	defer cancel()
	nc, err := s.cfg.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tune(nc)
	if s.cfg.TLS != nil {
		nc = tls.Client(nc, s.tlsFor(address))
	}
	defer context.AfterFunc(s.ctx, func() { nc.Close() })() // Close need not wait for a mute peer
	their, generation, err := s.hail(nc, nil)
	if err != nil {
		nc.Close()
		return nil, fitsTLS(err)
	}
	if s.cfg.Arena != nil && their.Socket != "" && s.me.near(their.place) {
		if l, err := s.openNear(ctx, address, their.Socket, generation); err == nil {
			nc.Close()
			return l, nil
		} else if errors.Is(err, ErrRefused) {
			nc.Close()
			return nil, err
		} else {
			s.log.Warn("a receiver of this host takes no loans", "address", address, "err", err)
		}
	}
	return newLink(s, address, nc, generation, false), nil
}

// openNear connects to a receiver of this host. Its name was given by whoever answered at address, so
// the process there must be the same, and the same user's.
func (s *sender) openNear(ctx context.Context, address, socket string, generation uint64) (*link, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(s.ctx, func() { nc.Close() })()
	if err = sameUser(nc.(*net.UnixConn), s.user); err == nil {
		tune(nc)
		var their hello
		var got uint64
		if their, got, err = s.hail(nc, s.cfg.Arena); err == nil && got == generation {
			return newLink(s, address, nc, generation, their.Borrows), nil
		}
		if err == nil {
			err = fmt.Errorf("generation %d answers at %s, %d at %s", got, socket, generation, address)
		}
	}
	nc.Close()
	return nil, err
}

// drop forgets a link, so that the next Send dials. Nothing else of its peer is worth keeping; a worker
// that restarts may have another address.
func (s *sender) drop(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.peers[l.address]; p != nil && p.link == l {
		delete(s.peers, l.address)
		s.m.conns.WithLabelValues(sideSender).Dec()
	}
}

// forget ends a link whose connection is closed.
func (s *sender) forget(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, l)
}
