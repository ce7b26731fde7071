// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"afterimage/internal/arena"
)

// lent keeps the loans that came by one connection. The connection is their account: as long as it is
// open the sender leaves their memory alone, so it stays open until the last one is back.
type lent struct {
	s *session

	mu   sync.Mutex // guards the fields below
	bufs map[flight]*arena.Buf
	over bool // the session has ended
}

func newLent(s *session) *lent { return &lent{s: s, bufs: make(map[flight]*arena.Buf)} }

// borrow takes an object that the sender left in its own memory.
func (s *session) borrow(h header) error {
	if h.Length != lendBytes || s.memory == nil {
		return fmt.Errorf("%w: a loan of %d bytes, on a connection with %v memory", errMalformed, h.Length, s.memory != nil)
	}
	var b [lendBytes]byte
	if _, err := io.ReadFull(s.in, b[:]); err != nil {
		return err
	}
	off, n := binary.LittleEndian.Uint64(b[lendOffset:]), binary.LittleEndian.Uint64(b[lendLength:])
	rm, st, reason := s.r.admit(s, h, n)
	if rm == nil {
		s.drop(dropReason(st))
		s.reply(frameCredit, h, 0, "")
		if st != statusFollow {
			s.reply(frameComplete, h, st, reason)
		}
		return nil
	}
	buf, err := s.lent.take(h.flight(), off, n)
	if err != nil { // the sender's account of its own memory is wrong: nothing that it says can be used
		s.landed(rm, nil, rm.meta, err)
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	meta, _, err := rm.want.Protocol.OpenHead(buf.Bytes(), rm.want.Key, rm.want.Contract)
	st, reason = s.landed(rm, buf, meta, err)
	buf.Release() // the room has a reference, or the loan goes back
	s.reply(frameComplete, h, st, reason)
	return nil
}

// take makes a Buf of a loan.
func (l *lent) take(f flight, off, n uint64) (*arena.Buf, error) {
	buf, err := l.s.memory.Buf(int64(off), int64(n), func() { l.giveBack(f, n) })
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bufs[f] = buf
	l.s.r.n.loans.Add(float64(n))
	return buf, nil
}

// giveBack returns a loan whose last reference is gone.
func (l *lent) giveBack(f flight, n uint64) {
	l.s.r.n.loans.Sub(float64(n))
	l.mu.Lock()
	delete(l.bufs, f)
	over, last := l.over, len(l.bufs) == 0
	l.mu.Unlock()
	switch {
	case !over:
		l.s.answers.add(header{Type: frameCredit, Transfer: f.id, Attempt: f.attempt, Generation: l.s.r.generation}, "")
		l.s.answers.lull()
	case last:
		l.s.nc.Close()
	}
}

// recall asks the holders of a loan to let go of it.
func (l *lent) recall(f flight) {
	l.mu.Lock()
	buf := l.bufs[f]
	l.mu.Unlock()
	if buf != nil { // or it is on its way back
		buf.Recall()
	}
}

// leave ends the account: with the connection at once, or with the last loan. Holders are asked to let
// go, since the whole memory of the sender lives as long as one of them.
func (l *lent) leave() {
	l.mu.Lock()
	l.over = true
	bufs := make([]*arena.Buf, 0, len(l.bufs))
	for _, b := range l.bufs {
		bufs = append(bufs, b)
	}
	l.mu.Unlock()
	if len(bufs) == 0 {
		l.s.nc.Close()
	} else {
		_ = l.s.near.CloseRead() // what the sender still says is not heard
	}
	if l.s.memory != nil {
		_ = l.s.memory.Close() // unmaps with the last loan
	}
	for _, b := range bufs {
		b.Recall()
	}
}
