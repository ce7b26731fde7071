// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"container/heap"
	"time"
)

// prompt waits for a P/D.
type prompt struct {
	request int
	ready   time.Duration // when its prefill can begin
	work    time.Duration // of its prefill
	pieces  int           // in which it is prefilled while others decode
	answer  time.Duration // of decoding after the first token
}

// prefillState is a P/D. Prompts are prefilled one after the other, in the order in which they are ready;
// requests that decode share steps, and a prefill stops them all.
type prefillState struct {
	free     time.Duration // when the last prefill that was begun ends
	decoding time.Duration // when the last answer that was begun ends
	busy     time.Duration
	open     int // requests that are not answered yet
	waiting  prompts
	ends     times // of open requests whose prefill has begun
	resident *shelf
}

// choose returns the P/D with the fewest open requests at a time.
func (r *run) choose(at time.Duration) int {
	best := 0
	for i := range r.pds {
		r.pds[i].advance(r, at)
		a, b := &r.pds[i], &r.pds[best]
		if a.open < b.open || a.open == b.open && a.free < b.free {
			best = i
		}
	}
	return best
}

func (s *prefillState) add(p prompt) {
	s.open++
	heap.Push(&s.waiting, p)
}

// advance begins all prefills that are ready by a time, and forgets requests that are answered by then. No
// request that comes later is ready earlier, so the order is final.
func (s *prefillState) advance(r *run, until time.Duration) {
	for len(s.waiting) > 0 && s.waiting[0].ready <= until {
		p := heap.Pop(&s.waiting).(prompt)
		start := max(p.ready, s.free)
		if n := r.m.Sequences; n > 0 && len(s.ends) >= n {
			start = max(start, heap.Pop(&s.ends).(time.Duration))
			s.open--
		}
		if s.decoding > start {
			// The step that runs ends first, half a step from now on average; then a step goes before each
			// piece of the prompt.
			start += r.m.Step/2 + time.Duration(p.pieces)*r.m.Step
			s.decoding += p.work
		}
		s.free = start + p.work
		s.busy += p.work
		s.decoding = max(s.decoding, s.free+p.answer)
		heap.Push(&s.ends, s.free+p.answer)
		r.ttft[p.request] = float32((s.free - r.t.Requests[p.request].At).Seconds())
	}
	for len(s.ends) > 0 && s.ends[0] <= until {
		heap.Pop(&s.ends)
		s.open--
	}
}

// prompts is a heap by readiness.
type prompts []prompt

func (h prompts) Len() int           { return len(h) }
func (h prompts) Less(i, j int) bool { return h[i].ready < h[j].ready }
func (h prompts) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *prompts) Push(x any)        { *h = append(*h, x.(prompt)) }
func (h *prompts) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// times is a heap of times.
type times []time.Duration

func (h times) Len() int           { return len(h) }
func (h times) Less(i, j int) bool { return h[i] < h[j] }
func (h times) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *times) Push(x any)        { *h = append(*h, x.(time.Duration)) }
func (h *times) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
