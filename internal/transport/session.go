// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/quick"
)

// session is one data connection of a receiver. One goroutine reads, one frame after the other; answers
// are gathered and written when there is nothing to read for the moment.
type session struct {
	r       *receiver
	nc      net.Conn
	near    *net.UnixConn // nc, when the sender is on this host
	quick   *quick.Conn   // likewise, for short messages
	log     *slog.Logger
	in      *bufio.Reader // of pace
	pace    pace
	answers *answers
	memory  *arena.Mapping // the sender's arena; nil when it lends nothing
	lent    *lent
	check   embedding.Checker // of the object that is being received
	quiet   int               // reads in a row that ended without a byte
	woke    bool              // somebody who waited has an object since the last answer

	// Guarded by r.mu.
	stopped  bool // the Receiver closes
	filling  *room
	reserved map[*ticket]struct{} // whose sender must prove life on this connection
}

// inBytes is the size of the read buffer: it takes several small objects in one system call, and a
// large one goes past it straight to the arena.
const inBytes = 64 << 10

// newSession takes over nc; near is the same connection if it is one of this host.
func newSession(r *receiver, nc net.Conn, near *net.UnixConn) *session {
	s := &session{r: r, nc: nc, near: near, log: r.log.With("peer", nc.RemoteAddr().String()), reserved: make(map[*ticket]struct{})}
	s.quick = quick.New(nc, quick.Poll{})
	s.pace = pace{s: s}
	s.in = bufio.NewReaderSize(&s.pace, inBytes)
	s.answers = newAnswers(nc, s.quick, r.cfg.WriterTimeout, s.hangUp)
	s.lent = newLent(s)
	return s
}

// run serves the connection until it breaks or makes no sense.
func (s *session) run() {
	err := s.greet()
	if err == nil {
		s.r.m.conns.WithLabelValues(sideReceiver).Inc()
		for err == nil {
			err = s.frame()
		}
		s.r.m.conns.WithLabelValues(sideReceiver).Dec()
	}
	s.ended(err)
	s.leave(err)
}

// ended logs and counts why a connection closes. An ordinary end is silent.
func (s *session) ended(err error) {
	switch {
	case s.r.ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed):
	case errors.Is(err, errMalformed):
		s.drop("malformed")
		s.log.Warn("data connection closed", "err", err)
	case errors.Is(err, ErrRefused):
		s.drop("hello")
		s.log.Warn("data connection refused", "err", err)
	default:
		s.log.Info("data connection ended", "err", err)
	}
}

// leave fails what the sender announced on this connection, and closes it once nothing is on loan any
// more: the sender takes the end of the connection for the end of all loans.
func (s *session) leave(why error) {
	s.r.mu.Lock()
	if errors.Is(why, io.EOF) || errors.Is(why, unix.ECONNRESET) {
		why = errors.New("its sender is gone")
	}
	for t := range s.reserved {
		t.sender = nil
		if !t.awaits { // else another sender brings it
			s.r.failLocked(t, "disconnect", why)
		}
		t.awaits = false
	}
	clear(s.reserved)
	delete(s.r.sessions, s)
	s.r.mu.Unlock()
	s.answers.flush()
	s.answers.close()
	s.lent.leave()
}

// drop counts a frame, or the bytes of a connection that make none, as thrown away.
func (s *session) drop(reason string) { s.r.m.dropped.WithLabelValues(sideReceiver, reason).Inc() }

// frame reads one frame and answers it. An error closes the connection.
func (s *session) frame() error {
	h, err := s.next()
	if err != nil {
		return err
	}
	if h.Length > 0 {
		s.pace.begin()
		defer s.pace.end()
	}
	switch h.Type {
	case frameData:
		return s.data(h)
	case frameComplete:
		return s.borrow(h)
	case frameAbandon:
		text, err := readText(s.in, h)
		if err == nil {
			s.abandon(h, string(text))
		}
		return err
	}
	if h.Length != 0 {
		return fmt.Errorf("%w: body of %d bytes in a frame of type %d", errMalformed, h.Length, h.Type)
	}
	switch h.Type {
	case frameReserve:
		s.reserve(h)
	case frameRefresh:
		s.refresh(h)
	case frameRecall:
		s.lent.recall(h.flight())
	case framePing:
		s.answers.add(header{Type: framePong, Generation: s.r.generation}, "")
	default:
		return fmt.Errorf("%w: unexpected type %d", errMalformed, h.Type)
	}
	return nil
}

// next waits for the head of a frame. Before it waits it sends what it has to say.
func (s *session) next() (header, error) {
	if s.in.Buffered() < headerBytes || s.answers.many() {
		if s.woke {
			s.woke = false
			runtime.Gosched() // who waits for an object goes on before its sender is told
		}
		s.answers.flush()
	}
	for {
		f, err := s.in.Peek(headerBytes)
		switch {
		case err == nil:
			h, err := parseHeader(f)
			if err == nil {
				_, err = s.in.Discard(headerBytes)
			}
			s.quiet = 0
			s.pace.end()
			return h, err
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := s.silent(); err != nil {
				return header{}, err
			}
		case errors.Is(err, io.EOF) && s.in.Buffered() > 0:
			return header{}, io.ErrUnexpectedEOF
		default:
			return header{}, err
		}
	}
}

// silent says whether a connection on which nothing came for a while is to be given up.
func (s *session) silent() error {
	s.r.mu.Lock()
	stopped, promised := s.stopped, len(s.reserved)
	s.r.mu.Unlock()
	early := time.Since(s.pace.moved) < s.r.cfg.WriterTimeout/2 // an interrupt that came after what it was for
	if !early {
		s.quiet++
	}
	quiet := time.Duration(s.quiet) * s.r.cfg.WriterTimeout
	switch {
	case stopped:
		return net.ErrClosed
	case early:
	case promised > 0:
		return fmt.Errorf("no sign of life for %v from the sender of %d transfers", s.r.cfg.WriterTimeout, promised)
	case quiet >= s.r.cfg.IdleTimeout:
		return fmt.Errorf("no frame for %v", s.r.cfg.IdleTimeout)
	}
	s.pace.moved = time.Time{} // the deadline has passed
	return nil
}

// answer queues a frame about a transfer, and has it sent soon. It never blocks.
func (s *session) answer(typ frameType, f flight, st status, reason string) {
	s.answers.add(header{Type: typ, Status: st, Transfer: f.id, Attempt: f.attempt, Generation: s.r.generation}, reason)
	s.answers.hurry()
}

// reply queues the answer to the frame h, which goes out before the session waits again.
func (s *session) reply(typ frameType, h header, st status, reason string) {
	s.answers.add(header{Type: typ, Status: st, Transfer: h.Transfer, Attempt: h.Attempt, Generation: s.r.generation}, reason)
}

// interrupt makes a Read that is under way return at once with os.ErrDeadlineExceeded. The caller holds
// r.mu.
func (s *session) interrupt() {
	if s.r.closed {
		s.stopped = true
	}
	_ = s.nc.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed connection, whose Read returns too
}
