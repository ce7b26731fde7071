// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"encoding/binary"
	"time"
)

// Returns wait for linger, so that those of calls in a row travel together: one by one they wake the Store
// beside each next call, which on 2 cores costs that call half its time. They do not wait when the Store
// asks, or when they are lingerShare of its memory.
const (
	linger      = time.Millisecond
	lingerShare = 8
)

// write sends returns and lane ends.
func (l *link) write() {
	var out []byte
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for range l.wake {
		timer.Reset(linger)
		select {
		case <-timer.C:
		case <-l.hurry:
		}
		l.mu.Lock()
		returns, ends, over := l.returns, l.ends, l.over
		l.returns, l.ends, l.due = nil, nil, 0
		l.mu.Unlock()
		if over {
			return
		}
		out = appendCounted(out[:0], opReturn, returns, 1)
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
