// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"io"
	"net"
	"sync"
	"time"

	"afterimage/internal/quick"
)

// answers gathers what a receiver has to say on one connection. Frames go out whole and in order.
type answers struct {
	nc      net.Conn
	quick   *quick.Conn   // of nc; nil where there is none
	broke   func()        // makes the reader of the connection notice
	timeout time.Duration // a peer that does not read for that long loses its connection
	soon    chan struct{} // has a value when something should go within linger
	now     chan struct{} // has a value when it should go at once
	done    chan struct{}

	writing chan struct{} // has room for who writes, for as long as that takes; taken before mu
	moved   time.Time     // of the write deadline; guarded by writing

	mu     sync.Mutex // guards the fields below
	out    []byte
	spare  []byte
	closed bool
}

// linger is how long returned loans wait for company. One by one, they would wake the sender beside each
// next transfer, which on 2 cores costs that one half its time.
const linger = time.Millisecond

// flushBytes of answers are not held back any longer: their senders wait.
const flushBytes = 16 * headerBytes

func newAnswers(nc net.Conn, q *quick.Conn, timeout time.Duration, broke func()) *answers {
	return &answers{
		nc: nc, quick: q, timeout: timeout, broke: broke,
		soon: make(chan struct{}, 1), now: make(chan struct{}, 1), done: make(chan struct{}), writing: make(chan struct{}, 1),
	}
}

// add queues a frame.
func (a *answers) add(h header, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.out = appendText(a.out, h, text)
	}
}

// hurry has what is queued sent at once, by another goroutine.
func (a *answers) hurry() { poke(a.now) }

// lull has what is queued sent after linger, by another goroutine.
func (a *answers) lull() { poke(a.soon) }

// poke leaves a value for the next receiver.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// many reports whether enough has gathered to be worth a system call.
func (a *answers) many() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.out) >= flushBytes
}

// flush writes what is queued. An error ends the session.
func (a *answers) flush() {
	a.writing <- struct{}{}
	defer func() { <-a.writing }()
	a.mu.Lock()
	out := a.out
	a.out = a.spare[:0]
	a.mu.Unlock()
	if len(out) == 0 {
		a.spare = out
		return
	}
	if now := time.Now(); now.Sub(a.moved) >= a.timeout/4 {
		if a.nc.SetWriteDeadline(now.Add(a.timeout)) == nil {
			a.moved = now
		}
	}
	var to io.Writer = a.nc
	if a.quick != nil && len(out) <= quick.MaxBytes {
		to = a.quick
	}
	if _, err := to.Write(out); err != nil {
		a.broke()
	}
	a.spare = out
}

// run sends what others than the reader queue.
func (a *answers) run() {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for {
		select {
		case <-a.now:
		case <-a.soon:
			timer.Reset(linger)
			select {
			case <-timer.C:
			case <-a.now:
			case <-a.done:
				return
			}
		case <-a.done:
			return
		}
		a.flush()
	}
}

// close ends run.
func (a *answers) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.closed = true
		close(a.done)
	}
}
