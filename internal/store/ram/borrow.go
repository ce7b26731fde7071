// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// settle ends a borrower and all its loans. gone says that its process cannot read any more.
func (s *Server) settle(b *borrower, gone bool) {
	s.mu.Lock()
	delete(s.borrowers, b.id)
	s.mu.Unlock()
	s.shelf.end(b, gone)
	if b.account != nil {
		b.account.buf.Release()
	}
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
