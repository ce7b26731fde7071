// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// link is a client's account with one Store process: the view of that Store's memory, and the loans in
// there. It ends when the Store is gone, or with the last loan after leave.
type link struct {
	c      *Client
	nc     net.Conn
	in     frames
	id     uint64
	memory *arena.Mapping
	shown  bool // the Store maps this process's arena
	alive  *probe
	wake   chan struct{} // has a value when write has something to send
	gone   chan struct{} // closed when the Store is, or the connection

	mu               sync.Mutex            // guards the fields below
	loans            map[uint64]*arena.Buf // those that were asked for
	pins             *pins                 // nil where every object is asked for
	bytes            int64                 // of loans and pins
	returns          []uint64
	due              int64    // bytes of returns
	ends             []uint64 // pairs of lane and request
	look             bool     // the Store is to look at the table
	lingering, fresh bool     // a timer runs for returns; there were some since it last looked
	leaving          bool
	shut             bool // this side closed the link: the Store has ended the loans, so there are none any more
	over             bool // the Store is gone

	sketchMu sync.RWMutex // held while the sketch is read or unmapped
	sketch   *sketch      // nil when the Store's cannot be used
}

// borrow makes a Buf of a loan. An error means that the Store lent what is not in its memory.
func (l *link) borrow(id, off, n uint64) (*arena.Buf, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.shut || l.over:
		return nil, net.ErrClosed
	case l.loans[id] != nil:
		return nil, fmt.Errorf("%w: loan %d twice", errProtocol, id)
	}
	b, err := l.memory.Buf(int64(off), int64(n), func() { l.giveBack(id, int64(n)) })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProtocol, err)
	}
	l.loans[id] = b
	l.bytes += int64(n)
	return b, nil
}

// giveBack returns a loan whose last reference is gone.
func (l *link) giveBack(id uint64, n int64) {
	l.mu.Lock()
	delete(l.loans, id)
	l.bytes -= n
	if !l.over {
		l.returns = append(l.returns, id)
		l.due += n
		l.lingerLocked()
	}
	many := l.due > l.memory.Size()/lingerShare
	last := l.lastLocked()
	l.mu.Unlock()
	if last {
		l.nc.Close()
		return
	}
	if many {
		poke(l.wake)
	}
}

// lastLocked reports whether the link is to be closed, after its last loan.
func (l *link) lastLocked() bool {
	last := l.leaving && len(l.loans)+l.pins.count() == 0
	l.shut = l.shut || last
	return last
}

// laneEnded tells the Store of a lane that this side closed, and of the request that was not answered
// there.
func (l *link) laneEnded(lane, request uint64) {
	l.mu.Lock()
	if !l.over {
		l.ends = append(l.ends, lane, request)
	}
	l.mu.Unlock()
	poke(l.wake)
}

// poke leaves a value for the next receiver.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// leave ends the link with its last loan, and reports whether that is at once.
func (l *link) leave() (idle bool) {
	l.mu.Lock()
	l.leaving = true
	idle = l.lastLocked()
	l.mu.Unlock()
	if idle {
		l.nc.Close()
	}
	return idle
}

// held returns how many loans there are, and their bytes.
func (l *link) held() (int, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.loans) + l.pins.count(), l.bytes
}

// noneStored reports that for sure none of the keys is stored. The order matters: a Store that is
// there after its sketch was read was the one to ask.
func (l *link) noneStored(keys []embedding.Key) bool {
	l.sketchMu.RLock()
	defer l.sketchMu.RUnlock()
	if l.sketch == nil {
		return false
	}
	for _, k := range keys {
		if !l.sketch.absent(hashOf(k)) {
			return false
		}
	}
	return !l.alive.hungUp()
}

// read takes recalls until the Store is gone, or this side closed the link. Then everybody is asked to
// let go: the memory of a Store that died stays until its last reader is done, all of it.
func (l *link) read() {
	defer close(l.gone)
	err := l.readRecalls()
	for errors.Is(err, errProtocol) {
		// The connection is the right to read: it stays open while there are loans.
		l.c.lose(l)
		_, err = l.in.r.Read(make([]byte, keepBytes))
		if err == nil {
			err = errProtocol
		}
	}
	l.c.link.CompareAndSwap(l, nil)
	l.mu.Lock()
	l.over, l.leaving = true, true
	l.returns, l.ends = nil, nil
	l.pins.blind()
	l.mu.Unlock()
	l.nc.Close()
	poke(l.wake) // ends write
	l.sketchMu.Lock()
	if l.sketch != nil {
		l.sketch.close()
		l.sketch = nil
	}
	l.sketchMu.Unlock()
	l.memory.Close()
	l.recall(nil)
}

func (l *link) readRecalls() error {
	for {
		h, body, err := l.in.next()
		if err != nil {
			return err
		}
		if h.op != opRecall || len(body) != 8*h.count {
			return fmt.Errorf("%w: op %d with %d bytes on a link", errProtocol, h.op, len(body))
		}
		ids := make([]uint64, h.count)
		c := cursor{b: body}
		for i := range ids {
			ids[i] = c.u64()
		}
		if len(ids) > 0 {
			l.c.recalls.Add(uint64(len(ids)))
			l.recall(ids)
		}
	}
}

// recall asks the holders of loans to let go; of all loans with nil.
func (l *link) recall(ids []uint64) {
	var bufs []*arena.Buf
	l.mu.Lock()
	if ids == nil {
		for _, b := range l.loans {
			bufs = append(bufs, b)
		}
		bufs = l.pins.all(bufs)
	}
	for _, id := range ids {
		b := l.loans[id]
		if id&pinnedOnly != 0 {
			b = l.pins.recalled(id)
			l.look = true // there, or in what was pinned and let go since
		}
		if b != nil { // or it is on its way back
			bufs = append(bufs, b)
		}
	}
	l.mu.Unlock()
	poke(l.wake) // what is on its way back, too
	for _, b := range bufs {
		b.Recall()
	}
}
