// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"encoding/binary"
	"time"
)

// Returns travel in front of the next call: a message of their own would wake the Store beside it, which on
// 2 cores costs that call half its time. Where no call comes they go by themselves within linger, at once
// when the Store asks, or when they are lingerShare of its memory.
const (
	linger      = 4 * time.Millisecond
	lingerShare = 8
)

// lingerLocked sees to it that returns do not wait for longer. While there are some time and again the
// timer stays: to start it for each would wake a thread.
func (l *link) lingerLocked() {
	l.fresh = true
	if !l.lingering {
		l.lingering = true
		time.AfterFunc(linger, l.lingered)
	}
}

func (l *link) lingered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lingering = l.fresh && !l.over; !l.lingering {
		return
	}
	l.fresh = false
	if len(l.returns) > 0 {
		poke(l.wake)
	}
	time.AfterFunc(linger, l.lingered)
}

// carry hands over returns to a call, which puts them back with uncarry unless it is answered.
func (l *link) carry(into []uint64) []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.returns), maxBatch)
	into = append(into, l.returns[:n]...)
	l.returns = l.returns[:copy(l.returns, l.returns[n:])]
	if len(l.returns) == 0 {
		l.due = 0
	}
	return into
}

// uncarry takes back returns of which nobody knows whether they arrived. The Store passes over those that
// did.
func (l *link) uncarry(ids []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over && len(ids) > 0 {
		l.returns = append(l.returns, ids...)
		l.lingerLocked()
	}
}

// write sends returns that waited, and lane ends.
func (l *link) write() {
	var out []byte
	for range l.wake {
		l.mu.Lock()
		returns, ends, look, over := l.returns, l.ends, l.look, l.over
		l.returns, l.ends, l.look, l.due = nil, nil, false, 0
		l.mu.Unlock()
		if over {
			return
		}
		out = appendCounted(out[:0], opReturn, returns, 1)
		if look && len(out) == 0 {
			out = head{op: opReturn}.append(out)
		}
		out = appendCounted(out, opLaneEnd, ends, 2)
		if len(out) == 0 {
			continue
		}
		if _, err := l.nc.Write(out); err != nil {
			return // read sees it as well
		}
		if cap(out) > keepBytes {
			out = nil
		}
	}
}

// appendCounted writes frames of items that are per numbers each.
func appendCounted(b []byte, o op, numbers []uint64, per int) []byte {
	for len(numbers) > 0 {
		n := min(len(numbers), maxBatch*per)
		b = head{op: o, count: n / per, body: 8 * n}.append(b)
		for _, v := range numbers[:n] {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		numbers = numbers[n:]
	}
	return b
}
