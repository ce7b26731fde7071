// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"time"
)

// lifeSign is how often a sender that owes an object proves that it lives: four times within the
// receiver's patience.
const lifeSign = 500 * time.Millisecond

// keepHouse pings, and breaks the link when the receiver owes an answer for too long.
func (l *link) keepHouse() {
	every := min(lifeSign, l.s.cfg.PingInterval)
	tick := time.NewTicker(every)
	defer tick.Stop()
	pinged := time.Now()
	for {
		select {
		case now := <-tick.C:
			silent, working := l.look(now)
			if silent > l.s.cfg.PeerTimeout {
				_ = l.fail(fmt.Errorf("receiver silent for %v", silent.Round(time.Second)))
				return
			}
			if working || now.Sub(pinged) >= l.s.cfg.PingInterval {
				l.post(header{Type: framePing})
				pinged = now
			}
		case <-l.done:
			return
		}
	}
}

// look returns for how long the receiver has owed an answer, and whether it waits for an object.
func (l *link) look(now time.Time) (silent time.Duration, working bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.asked.IsZero() {
		silent = now.Sub(l.asked)
	}
	return silent, len(l.calls) > 0
}
