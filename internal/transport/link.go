// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"afterimage/internal/quick"
)

// link is one data connection of a sender. Any goroutine may send. One goroutine reads, one writes what
// others queue, and one keeps house: it pings, and watches for signs of life.
type link struct {
	s          *sender
	address    string
	nc         net.Conn
	near       *net.UnixConn // nc, when the receiver is on this host
	quick      *quick.Conn   // likewise, for short messages
	lends      bool          // the receiver maps this process's arena
	generation uint64        // of the receiver
	yields     bool          // a large call was answered; only the reader touches it
	wake       chan struct{} // holds a value when the queue has grown and nobody writes
	done       chan struct{} // closed when the link is broken

	mu     sync.Mutex // guards the fields below
	err    error      // why it broke; wraps ErrPeer
	calls  map[flight]*call
	spare  []*call // that nobody waits for
	queue  []parcel
	busy   bool      // somebody writes to nc, and may use due
	due    time.Time // the write deadline
	loans  loans
	closed bool // the Sender has closed
	// asked is when the first frame after the last sign of life was written; zero when the receiver
	// owes nothing.
	asked time.Time
}

// newLink takes over nc after hello. Its goroutines are started by dial.
func newLink(s *sender, address string, nc net.Conn, generation uint64, lends bool) *link {
	l := &link{
		s: s, address: address, nc: nc, generation: generation, lends: lends,
		wake:  make(chan struct{}, 1),
		done:  make(chan struct{}),
		calls: make(map[flight]*call),
		loans: loans{bufs: make(map[flight]*loan)},
	}
	l.near, _ = nc.(*net.UnixConn)
	l.quick = quick.New(nc, s.cfg.Polls.Poll())
	return l
}

// abandon takes a flight out of the queue, and tells the receiver that it will not come.
func (l *link) abandon(f flight, why string) {
	l.mu.Lock()
	l.unqueueLocked(f)
	l.mu.Unlock()
	l.postText(header{Type: frameAbandon, Transfer: f.id, Attempt: f.attempt, Generation: l.generation}, why)
}

// reader is what frames of the receiver come from.
func (l *link) reader() io.Reader {
	if l.quick != nil {
		return l.quick
	}
	return l.nc
}

// read takes frames from the receiver until its end of the connection is closed. A link that broke for
// another reason is read on for as long as something is on loan: only the end of the connection says
// that the receiver has let go.
func (l *link) read() {
	in := bufio.NewReaderSize(l.reader(), quick.MaxBytes)
	for {
		l.yields = false
		err := l.frame(in)
		if err == nil {
			if l.yields && in.Buffered() > 0 {
				runtime.Gosched() // who is answered first goes on first: of several, the last one woken would
			}
			continue
		}
		_ = l.fail(err)
		for l.holdsLoans() && !ended(err) {
			if errors.Is(err, errMalformed) {
				_, err = io.Copy(io.Discard, in) // out of step: credits cannot be told
				if err == nil {
					err = io.EOF
				}
				continue
			}
			err = l.frame(in)
		}
		break
	}
	l.settle()
}

// ended tells the end of the peer's side of a connection from an error on this side.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) ||
		errors.Is(err, net.ErrClosed)
}

// frame takes one frame.
func (l *link) frame(in *bufio.Reader) error {
	f, err := in.Peek(headerBytes)
	if err != nil {
		return err
	}
	h, err := parseHeader(f)
	if err != nil {
		return err
	}
	_, _ = in.Discard(headerBytes) // they are buffered
	text, err := readText(in, h)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = time.Time{} // a sign of life
	switch h.Type {
	case framePong:
	case frameCredit:
		l.creditLocked(h.flight())
	case frameGrant, frameComplete:
		l.answeredLocked(h.flight(), answer{status: h.Status, reason: string(text)})
	case frameCancel:
		l.cancelledLocked(h.flight(), string(text))
	default:
		return fmt.Errorf("%w: unexpected type %d", errMalformed, h.Type)
	}
	return nil
}

// fail breaks the link, once, and returns why it is broken.
func (l *link) fail(cause error) error {
	l.s.drop(l) // first, so that whoever learns of the failure and sends again gets another link
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	l.err = fmt.Errorf("%w: %w", ErrPeer, cause)
	n := len(l.calls)
	for _, c := range l.calls {
		select {
		case c.answer <- answer{err: l.err}:
		default: // it has two answers already, which say more
		}
	}
	queue := l.queue
	l.queue = nil
	keep := len(l.loans.bufs) > 0
	l.mu.Unlock()
	close(l.done)
	for _, p := range queue {
		p.release()
	}
	if keep {
		_ = l.near.CloseWrite() // the receiver sees an end, and closes when the last loan is back
	} else {
		l.nc.Close()
	}
	if !errors.Is(cause, ErrClosed) {
		l.s.log.Info("data connection broke", "address", l.address, "err", cause, "sends_failed", n)
	}
	return l.cause()
}

// shut closes the connection, whatever is on loan.
func (l *link) shut() {
	_ = l.fail(ErrClosed)
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.nc.Close()
}

// cause returns why the link is broken.
func (l *link) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// unqueueLocked takes a flight's object out of the queue, unless it is being written.
func (l *link) unqueueLocked(f flight) {
	for i := range l.queue {
		if p := &l.queue[i]; p.flight == f && p.buf != nil {
			p.release()
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			return
		}
	}
}
