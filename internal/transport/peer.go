// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
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
	s.m.conns.WithLabelValues(sideSender).Inc()
	s.wg.Go(l.read)
	s.wg.Go(l.keepHouse)
}

// backoff returns the pause after n failures in a row.
func backoff(n int) time.Duration {
	return min(firstPause<<min(n-1, 10), maxPause)
}

// open dials address and exchanges hellos.
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
	defer context.AfterFunc(s.ctx, func() { nc.Close() })() // Close need not wait for a mute peer
	generation, err := s.greet(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return newLink(s, address, nc, generation), nil
}

// greet exchanges hellos and returns the receiver's generation.
func (s *sender) greet(nc net.Conn) (uint64, error) {
	if err := nc.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return 0, err
	}
	if _, err := nc.Write(appendText(nil, header{Type: frameHello}, s.me.encode())); err != nil {
		return 0, fmt.Errorf("hello: %w", err)
	}
	h, err := readHeader(nc)
	var foreign versionError
	if errors.As(err, &foreign) {
		return 0, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err != nil {
		return 0, fmt.Errorf("hello: %w", err)
	}
	if h.Type != frameHello {
		return 0, fmt.Errorf("hello: %w: answered by type %d", errMalformed, h.Type)
	}
	text, err := readText(nc, h)
	if err != nil {
		return 0, fmt.Errorf("hello: %w", err)
	}
	// The receiver's reason names both values; where it saw no difference, this side may.
	if h.Status != statusComplete {
		return 0, fmt.Errorf("%w: %s", ErrRefused, text)
	}
	their, err := parseHello(text)
	if err != nil {
		return 0, err
	}
	if err := s.me.fits(their); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	// From here on reads wait as long as they like: keepHouse watches the silence.
	return h.Generation, nc.SetDeadline(time.Time{})
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
