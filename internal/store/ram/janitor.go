// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"container/heap"
	"context"
	"time"
)

// Watermarks, in percent of the limit: when objects and uploads pass the high one, the coldest leave
// until they are below the low one, so that PUTs seldom wait for evictions.
const (
	highWater = 97
	lowWater  = 94
)

// crowdedLocked reports that the high watermark is passed.
func (s *shelf) crowdedLocked() bool { return s.used+s.held > s.limit*highWater/100 }

// nudge lets the janitor look.
func (s *shelf) nudge() {
	select {
	case s.work <- struct{}{}:
	default:
	}
}

// keepHouse drops objects when their time is over, and evicts ahead of need, until ctx ends.
func (s *shelf) keepHouse(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := s.tidy(time.Now())
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.work:
		}
	}
}

// tidyStep is the most objects dropped under one lock.
const tidyStep = 64

// tidy drops what is due and what is over the watermark, and returns when the next object is due.
func (s *shelf) tidy(now time.Time) time.Time {
	for evicting := false; ; {
		var next time.Time
		var more bool
		if next, evicting, more = s.tidySome(now, evicting); !more {
			return next
		}
	}
}

func (s *shelf) tidySome(now time.Time, evicting bool) (next time.Time, _, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range tidyStep {
		evicting = s.crowdedLocked() || evicting && s.used+s.held > s.limit*lowWater/100
		switch {
		case len(s.expiry) > 0 && !now.Before(s.expiry[0].expires):
			s.n.expired++
			s.unlinkLocked(s.expiry[0])
		case !evicting || !s.evictLocked():
			if len(s.expiry) > 0 {
				next = s.expiry[0].expires
			}
			return next, false, false
		}
	}
	return next, evicting, true
}

// expiry is a heap of the objects with a time to live, the next due in front.
type expiry []*object

func (h *expiry) add(o *object) { heap.Push(h, o) }

func (h *expiry) drop(o *object) {
	if o.due >= 0 {
		heap.Remove(h, o.due)
	}
}

// Len implements heap.Interface, as do the others below.
func (h expiry) Len() int           { return len(h) }
func (h expiry) Less(i, j int) bool { return h[i].expires.Before(h[j].expires) }
func (h expiry) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].due, h[j].due = i, j
}

// Push implements heap.Interface.
func (h *expiry) Push(x any) {
	o := x.(*object)
	o.due = len(*h)
	*h = append(*h, o)
}

// Pop implements heap.Interface.
func (h *expiry) Pop() any {
	old := *h
	o := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	o.due = -1
	return o
}
