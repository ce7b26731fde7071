// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// reach answers wants without a call, and reports how many of them. The others are left as they are.
func (l *link) reach(wants []store.Want, gots []store.Got) (answered int) {
	l.sketchMu.RLock()
	defer l.sketchMu.RUnlock()
	l.mu.Lock()
	if l.pins == nil || l.pins.index == nil || l.leaving {
		l.mu.Unlock()
		return 0
	}
	now := time.Now().UnixNano()
	misses, touches := l.pins.misses, l.pins.touches
	for i, w := range wants {
		h := hashOf(w.Key)
		if gots[i].Buf = l.pinLocked(w, h, now); gots[i].Buf != nil {
			answered++
		} else if l.sketch != nil && l.sketch.absent(h) {
			gots[i].Err = store.ErrMiss
			l.pins.misses++
			answered++
		}
	}
	if l.pins.misses > misses {
		l.pins.set(missesWord, l.pins.misses)
	}
	look, pinned := l.look, l.pins.touches-touches
	l.mu.Unlock()
	if look {
		poke(l.wake)
	}
	// A Store that is there after all that was the one to look at; from another one nothing is taken.
	if answered > 0 && l.alive.hungUp() {
		undo(gots)
		return 0
	}
	l.c.pinned.Add(pinned)
	return answered
}

// pinTries is how often a pin is tried again when the Store took stock in between.
const pinTries = 3

// pinLocked pins the object of w; nil when the Store has to be asked.
func (l *link) pinLocked(w store.Want, h xxh3.Uint128, now int64) *arena.Buf {
	for range pinTries {
		b, again := l.tryLocked(w, h, now)
		if b != nil || !again {
			return b
		}
	}
	return nil
}

// tryLocked does one try. The order of its steps is what pinning rests on; see the package comment.
func (l *link) tryLocked(w store.Want, h xxh3.Uint128, now int64) (_ *arena.Buf, again bool) {
	p := l.pins
	word := atomic.LoadUint64(p.index.allowance(p.place))
	at, ok := p.index.find(w.Key, h)
	if !ok || !suits(at.bytes, w) || at.expires != 0 && now >= int64(at.expires) {
		return nil, false
	}
	n := int64(at.bytes)
	if p.bytes+n > int64(word&belowNumber) {
		return nil, false
	}
	i := p.free()
	if i < 0 {
		return nil, false
	}
	p.pause("found")
	p.set(slotWords+i, word&^belowNumber|at.id)
	p.pause("written")
	if atomic.LoadUint64(p.index.allowance(p.place)) != word || !at.same() {
		p.set(slotWords+i, 0)
		return nil, true
	}
	s := &p.slots[i]
	if s.release == nil {
		s.release = func() { l.unpin(i) }
	}
	b, err := l.memory.Buf(int64(at.off), n, s.release)
	if err != nil { // the Store says what it does not have
		p.set(slotWords+i, 0)
		return nil, false
	}
	s.id, s.buf, s.bytes, s.recalled = at.id, b, n, false
	p.n, p.bytes, p.low = p.n+1, p.bytes+n, i+1
	l.bytes += n
	l.look = p.touch(at.id, now) || l.look
	return b, false
}

// suits reports whether an object of n bytes is what was wanted.
func suits(n uint64, w store.Want) bool {
	most := uint64(max(w.Bytes, 0))
	return n > 0 && n <= most && (!w.Exact || n == most)
}

// unpin ends a pin, with the last reference of its Buf.
func (l *link) unpin(i int) {
	l.mu.Lock()
	p := l.pins
	s := &p.slots[i]
	p.set(slotWords+i, 0)
	p.n, p.bytes, p.low = p.n-1, p.bytes-s.bytes, min(p.low, i)
	l.bytes -= s.bytes
	s.buf = nil
	tell := s.recalled && !l.over
	l.look = l.look || tell
	if l.over && p.n == 0 {
		p.close()
	}
	last := l.lastLocked()
	l.mu.Unlock()
	if last {
		l.nc.Close()
	} else if tell {
		poke(l.wake)
	}
}

// sizes answers Exists without a call; false when the Store has to be asked about one of the keys.
func (l *link) sizes(keys []embedding.Key, states []store.State) bool {
	l.sketchMu.RLock()
	defer l.sketchMu.RUnlock()
	l.mu.Lock()
	if l.pins == nil || l.pins.index == nil {
		l.mu.Unlock()
		return false
	}
	now, known := time.Now().UnixNano(), true
	for i := 0; known && i < len(keys); i++ {
		h := hashOf(keys[i])
		if at, ok := l.pins.index.find(keys[i], h); ok && (at.expires == 0 || now < int64(at.expires)) {
			states[i] = store.State{Present: true, Bytes: int64(at.bytes)}
		} else {
			known = l.sketch != nil && l.sketch.absent(h)
		}
	}
	l.mu.Unlock()
	if !known || l.alive.hungUp() {
		clear(states)
		return false
	}
	return true
}
