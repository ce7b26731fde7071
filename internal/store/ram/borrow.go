// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"

	"afterimage/internal/arena"
	"afterimage/internal/fdpass"
)

// makeLink makes the borrower of a client that asked for a link, and answers hello. When the Store's
// memory cannot be shown, the answer lacks flagLink and the connection is a lane like any other.
func (s *session) makeLink(h head, a ask) error {
	files, err := s.srv.show()
	if err != nil {
		s.src.take(0)
		return s.greet(h, greeting{}, nil)
	}
	defer fdpass.CloseAll(files)
	g := greeting{flags: flagLink, memory: s.srv.cfg.Arena.Stats().Capacity, sketch: s.srv.shelf.sketch.mem.Stats().Capacity}
	m, err := s.clientMemory(a)
	if err != nil {
		s.srv.cfg.Logger.Warn("store: objects of a client will be streamed", "process", a.pid, "error", err)
	} else if m != nil {
		g.flags |= flagMemory
	}
	s.borrower = s.srv.lendTo(m)
	g.link = s.borrower.id
	return s.greet(h, g, files)
}

// clientMemory maps the arena that a client showed; nil when it has none.
func (s *session) clientMemory(a ask) (*arena.Mapping, error) {
	if a.memory == 0 {
		s.src.take(0)
		return nil, nil
	}
	files := s.src.take(1)
	if files == nil {
		return nil, fmt.Errorf("no descriptor for %d bytes of memory", a.memory)
	}
	defer fdpass.CloseAll(files)
	return arena.MapShared(files[0], int64(a.memory))
}

// show returns descriptors of the Store's memory and sketch.
func (s *Server) show() ([]*os.File, error) {
	memory, err := s.cfg.Arena.Share()
	if err != nil {
		return nil, err
	}
	sketch, err := s.shelf.sketch.mem.Share()
	if err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	return []*os.File{memory, sketch}, nil
}

// lendTo registers a borrower under a number that others cannot guess.
func (s *Server) lendTo(m *arena.Mapping) *borrower {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		id := rand.Uint64()
		if _, taken := s.borrowers[id]; id != 0 && !taken {
			s.borrowers[id] = newBorrower(id, m)
			return s.borrowers[id]
		}
	}
}

func (s *Server) borrowerOf(id uint64) *borrower {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.borrowers[id]
}

// settle ends a borrower and all its loans. gone says that its process cannot read any more.
func (s *Server) settle(b *borrower, gone bool) {
	s.mu.Lock()
	delete(s.borrowers, b.id)
	s.mu.Unlock()
	s.shelf.end(b, gone)
	if b.arena != nil {
		if err := b.arena.Close(); err != nil {
			s.cfg.Logger.Warn("store: client memory stays mapped", "error", err)
		}
	}
}

// runLink serves a link until its client is gone. Whatever the client sends, the Store does not end
// the loans before that: the client may be reading.
func (s *session) runLink() (err error) {
	done := make(chan struct{})
	recalls := make(chan struct{})
	go func() {
		defer close(recalls)
		s.sendRecalls(done)
	}()
	defer func() {
		close(done)
		s.nc.Close() // ends a write that the client does not take
		<-recalls
		s.srv.settle(s.borrower, hasLeft(err))
	}()
	for {
		var h head
		var body []byte
		if h, body, err = s.in.next(); err == nil {
			err = s.linkFrame(h, body)
		}
		if errors.Is(err, errProtocol) {
			s.srv.malformed.Add(1)
			s.srv.cfg.Logger.Warn("store: link ignored from here on", "error", err)
			for err == nil || errors.Is(err, errProtocol) {
				_, err = s.r.Discard(keepBytes)
			}
		}
		if err != nil {
			return err
		}
	}
}

// hasLeft tells a link that its client closed, or that ended with its process, from one that was cut on
// this side while the client may be reading.
func hasLeft(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET)
}

// linkFrame handles what a client says on its link.
func (s *session) linkFrame(h head, body []byte) error {
	c := cursor{b: body}
	switch h.op {
	case opReturn:
		return s.endLoans(s.borrower, h, body)
	case opLaneEnd:
		if len(body) != laneEndBytes*h.count {
			return fmt.Errorf("%w: %d lane ends in %d bytes", errProtocol, h.count, len(body))
		}
		for range h.count {
			lane, request := c.u64(), c.u64()
			s.srv.shelf.laneEnded(s.borrower, lane, request)
		}
	default:
		return fmt.Errorf("%w: op %d on a link", errProtocol, h.op)
	}
	return nil
}

// takeBack handles returns that come in front of a request.
func (s *session) takeBack(h head, body []byte) error {
	if s.track == nil {
		return fmt.Errorf("%w: returns on a lane without a link", errProtocol)
	}
	return s.endLoans(s.track.to, h, body)
}

func (s *session) endLoans(b *borrower, h head, body []byte) error {
	if len(body) != 8*h.count {
		return fmt.Errorf("%w: %d returns in %d bytes", errProtocol, h.count, len(body))
	}
	c := cursor{b: body}
	s.returned = s.returned[:0]
	for range h.count {
		s.returned = append(s.returned, c.u64())
	}
	s.srv.shelf.giveBack(b, s.returned)
	return nil
}

// sendRecalls tells the client which loans the Store wants back.
func (s *session) sendRecalls(done <-chan struct{}) {
	var out []byte
	for {
		select {
		case <-done:
			return
		case <-s.borrower.wake:
		}
		for ids := s.srv.shelf.takeRecalls(s.borrower); len(ids) > 0; {
			n := min(len(ids), maxBatch)
			out = head{op: opRecall, count: n, body: 8 * n}.append(out[:0])
			for _, id := range ids[:n] {
				out = binary.LittleEndian.AppendUint64(out, id)
			}
			if _, err := s.nc.Write(out); err != nil {
				return // the client is gone, and its loans with it
			}
			ids = ids[n:]
		}
	}
}

// lend answers a GET by loan.
func (s *session) lend(h head, body []byte) error {
	if s.track == nil {
		return fmt.Errorf("%w: GET by loan on a lane without a link", errProtocol)
	}
	if err := s.wishList(h, body); err != nil {
		return err
	}
	var ok bool
	if s.offers, ok = s.srv.shelf.lend(s.track, h.request, s.wishes, s.offers[:0]); !ok {
		return errors.New("the client gave the call up")
	}
	defer s.endReplies()
	return s.writeAll(s.lineUp(h))
}

// take stores an object that lies in the client's memory: one copy, which is what is checked.
func (s *session) take(h head, body []byte) error {
	if s.track == nil || s.track.to.arena == nil {
		return fmt.Errorf("%w: PUT by loan on a lane without memory of the client", errProtocol)
	}
	c := cursor{b: body}
	off := c.u64()
	r, err := parseReserve(c.b)
	if err != nil || c.bad {
		return errors.Join(err, c.end())
	}
	src, err := s.track.to.arena.Buf(int64(off), r.bytes, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	defer src.Release()
	u, err := s.srv.shelf.put(r.key, r.bytes, r.opts, s.putDeadline(r.bytes))
	if err != nil {
		return s.text(h, statusRejected, err)
	}
	if u != nil {
		err = takeIn(u.buf.Bytes(), src.Bytes())
		// A client that closed the lane has taken its memory back, and may have done so before the copy
		// was complete. One that is still there keeps its range as it is until the answer.
		if s.alive.hungUp() {
			s.srv.shelf.abort(u)
			return errors.New("the client gave the call up")
		}
	}
	return s.finish(head{op: opTake, request: h.request}, u, err)
}
