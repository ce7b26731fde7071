// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"net"
	"time"
)

// post queues a frame without a body for keepHouse.
func (l *link) post(h header) {
	l.mu.Lock()
	l.outbox = h.append(l.outbox)
	l.mu.Unlock()
	select {
	case l.posted <- struct{}{}:
	default: // it has not looked since the last one
	}
}

// keepHouse writes what is posted, pings, and breaks the link when the receiver owes an answer for too
// long.
func (l *link) keepHouse() {
	tick := time.NewTicker(l.s.cfg.PingInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.posted:
			l.writeOutbox()
		case <-tick.C:
			if silent := l.silence(); silent > l.s.cfg.PeerTimeout {
				_ = l.fail(fmt.Errorf("receiver silent for %v", silent.Round(time.Second)))
				return
			}
			l.post(header{Type: framePing})
		case <-l.done:
			return
		}
	}
}

// writeOutbox waits for the token, which each holder gives back within the deadline of its write.
func (l *link) writeOutbox() {
	select {
	case l.token <- struct{}{}:
	case <-l.done:
		return
	}
	defer l.release()
	l.mu.Lock()
	out := l.outbox
	l.outbox = nil
	l.mu.Unlock()
	_ = l.write(context.Background(), net.Buffers{out}) // an error has broken the link
}

// silence returns for how long the receiver has owed an answer.
func (l *link) silence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked.IsZero() {
		return 0
	}
	return time.Since(l.asked)
}

// alive notes a sign of life.
func (l *link) alive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = time.Time{}
}
