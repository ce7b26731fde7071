// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// link is one generation of connections to one mooncake_client. When one of them fails, all of them
// are given up.
type link struct {
	layout *putLayout
	ping   *conn   // heartbeats only: a PUT blocks its connection
	reads  []*conn // exists and gets, which the server serves side by side
	writes []*conn // puts, removes, short reads while none of them runs, and what may wait long
	pid    int     // of the process, set before the link is used; 0 when it cannot be watched

	noInline atomic.Bool // the server does not know fnGetInline

	once  sync.Once
	down  chan struct{} // closed when a connection fails
	cause error         // set before down is closed
}

// dialLink connects, one connection after the other: the server spreads them over its threads in this
// order. It checks that a mooncake_client of a known release answers.
func dialLink(ctx context.Context, cfg Config) (*link, error) {
	l := &link{down: make(chan struct{})}
	for range 1 + cfg.ReadConns + cfg.WriteConns {
		c, err := dialConn(ctx, cfg.Addr, l.fail)
		if err != nil {
			l.close()
			return nil, err
		}
		switch {
		case l.ping == nil:
			l.ping = c
			if err := c.watch(); err != nil { // all connections end with the process at the other end
				l.close()
				return nil, err
			}
		case len(l.reads) < cfg.ReadConns:
			l.reads = append(l.reads, c)
		default:
			l.writes = append(l.writes, c)
		}
	}
	err := l.ping.ready(ctx)
	if err == nil {
		l.layout, err = l.write().findLayout(ctx, putLayouts)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *link) fail(err error) {
	l.once.Do(func() {
		l.cause = fmt.Errorf("connection to mooncake_client lost: %w", err)
		close(l.down)
	})
}

// close ends all connections and waits for their readers.
func (l *link) close() {
	l.fail(net.ErrClosed)
	if l.ping != nil {
		l.ping.close()
	}
	for _, c := range l.reads {
		c.close()
	}
	for _, c := range l.writes {
		c.close()
	}
}

func (l *link) read() *conn  { return idlest(l.reads) }
func (l *link) write() *conn { return idlest(l.writes) }

// idlest returns the first of the connections on which the fewest calls run. In turns, each call would find the
// server's thread, and what it needs, colder.
func idlest(cs []*conn) *conn {
	best, least := cs[0], cs[0].running.Load()
	for _, c := range cs[1:] {
		if n := c.running.Load(); n < least {
			best, least = c, n
		}
	}
	return best
}

// session is one identity of the arena at one mooncake_client.
type session struct {
	id      uuid
	l       *link // on which it was opened
	proc    *process
	settled bool // its mapping is gone for good; guarded by quarantine.mu
	warned  bool // that it could not be withdrawn; guarded by Client.turn
}

// openSession makes an identity and hands the arena over under it.
func (l *link) openSession(ctx context.Context, cfg Config, w *window) (*session, error) {
	_, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return nil, err
	}
	s := &session{id: newUUID(), l: l}
	// Ping first: the server expires only what has pinged once, so the memory of a process that dies
	// between the two calls would never be given back.
	if _, err := l.ping.ping(ctx, s.id); err != nil {
		return nil, err
	}
	s.proc, err = register(ctx, socketName(port), w.file, w.base, w.bytes, s.id)
	if err != nil {
		return nil, fmt.Errorf("hand %d bytes of arena over to mooncake_client: %w", w.bytes, err)
	}
	if l.pid == 0 && s.proc.pidfd >= 0 {
		l.pid = s.proc.pid
	}
	return s, nil
}

// serves says whether the process at the other end is the one that has the mapping of s, which is not
// known to be dead: only its word counts.
func (l *link) serves(s *session) bool {
	return s.l == l || s.proc.pidfd >= 0 && s.proc.pid > 0 && s.proc.pid == l.pid
}
