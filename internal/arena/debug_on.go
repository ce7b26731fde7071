// SPDX-License-Identifier: Apache-2.0

//go:build arenadebug

package arena

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// poisonByte fills freed ranges: as any float dtype it reads as NaN.
const poisonByte = 0xff

// keepEvents is how many of the newest events a range remembers beside its first one.
const keepEvents = 16

// trace is what was done to one range, and from where.
type trace struct {
	mu      sync.Mutex
	events  []event
	dropped int // events between the first and the newest
}

type event struct {
	op string
	pc [24]uintptr
	n  int
}

// add notes op and who asked for it: the caller of the method of Buf that called note.
func (t *trace) add(op string) {
	e := event{op: op}
	e.n = runtime.Callers(3, e.pc[:])
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.events = append(t.events, e); len(t.events) > keepEvents+1 {
		t.events = slices.Delete(t.events, 1, 2)
		t.dropped++
	}
}

// history tells all that is known of the range.
func (b *Buf) history() string {
	t := &b.trace
	t.mu.Lock()
	defer t.mu.Unlock()
	var w strings.Builder
	fmt.Fprintf(&w, "\nrange of %d bytes at %d, %d references", len(b.mem), b.off, b.refs.Load())
	for i, e := range t.events {
		if i == 1 && t.dropped > 0 {
			fmt.Fprintf(&w, "\n  ... %d events left out", t.dropped)
		}
		fmt.Fprintf(&w, "\n  %s", e.op)
		for frames := runtime.CallersFrames(e.pc[:e.n]); ; {
			f, more := frames.Next()
			fmt.Fprintf(&w, "\n    %s %s:%d", f.Function, f.File, f.Line)
			if !more {
				break
			}
		}
	}
	return w.String()
}

// tracker knows the live ranges of an arena and which memory carries the poison. The arena's lock
// guards it, but for live, which has its own.
type tracker struct {
	poisoned []uint64 // one bit per granule

	mu   sync.Mutex
	live map[*Buf]struct{}
}

func (t *tracker) add(b *Buf) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = make(map[*Buf]struct{})
	}
	t.live[b] = struct{}{}
}

func (t *tracker) drop(b *Buf) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, b)
}

func (t *tracker) list() []Holder {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Holder, 0, len(t.live))
	for b := range t.live {
		out = append(out, Holder{Offset: b.off, Bytes: len(b.mem), References: int(b.refs.Load()), History: b.history()})
	}
	slices.SortFunc(out, func(x, y Holder) int { return cmp.Compare(x.Offset, y.Offset) })
	return out
}

func (t *tracker) holders() string {
	var w strings.Builder
	for _, h := range t.list() {
		w.WriteString(h.History)
	}
	return w.String()
}

// poison overwrites a range that comes back.
func (t *tracker) poison(mem []byte, off, n int64) {
	if t.poisoned == nil {
		t.poisoned = make([]uint64, len(mem)/align/64+1)
	}
	part := mem[off : off+n]
	for i := range part {
		part[i] = poisonByte
	}
	for g := off / align; g < (off+n)/align; g++ {
		t.poisoned[g/64] |= 1 << (g % 64)
	}
}

// checkFreed panics when a range that is about to be handed out was written to after it came back.
func (t *tracker) checkFreed(mem []byte, off, n int64) {
	if t.poisoned == nil {
		return
	}
	defer func() { // the range is its holder's from here on
		for g := off / align; g < (off+n)/align; g++ {
			t.poisoned[g/64] &^= 1 << (g % 64)
		}
	}()
	for g := off / align; g < (off+n)/align; g++ {
		if t.poisoned[g/64]&(1<<(g%64)) == 0 {
			continue
		}
		for i, v := range mem[g*align : (g+1)*align] {
			if v != poisonByte {
				panic(fmt.Sprintf("BUG: arena: byte %d was written as %#x after its range was freed", g*align+int64(i), v))
			}
		}
	}
}
