// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"math"
	"slices"
	"time"
)

// run is one trace on its way through one model.
type run struct {
	m     Model
	p     Policy
	t     *Trace
	out   Outcome
	store *shelf
	enc   []encoderState
	pds   []prefillState
	turn  int // of Spread
	ttft  []float32
	spans []float32
}

// encoderState is an Encoder: a queue that works serially, and a cache.
type encoderState struct {
	free  time.Duration // when it has done all that it was given
	busy  time.Duration
	items int
	cache *shelf
	seen  map[uint32]struct{} // SecondSighting
}

// Run takes t through a model under a policy. It ends early with ctx.
func Run(ctx context.Context, t *Trace, m Model, p Policy) (Outcome, error) {
	if err := m.validate(p); err != nil {
		return Outcome{}, err
	}
	r := newRun(t, m, p)
	for i := range t.Requests {
		if i%4096 == 0 && ctx.Err() != nil {
			return Outcome{}, context.Cause(ctx)
		}
		r.request(i)
	}
	for i := range r.pds {
		r.pds[i].advance(r, forever)
	}
	r.finish()
	return r.out, nil
}

// newRun returns a run that has taken no request yet.
func newRun(t *Trace, m Model, p Policy) *run {
	r := &run{m: m, p: p, t: t, store: newShelf(p.StoreBytes, p.Eviction, p.TTL), enc: make([]encoderState, m.Encoders), pds: make([]prefillState, m.Prefills)}
	for i := range r.enc {
		r.enc[i].cache = newShelf(m.CacheBytes, LRU, 0)
		if p.SecondSighting {
			r.enc[i].seen = map[uint32]struct{}{}
		}
	}
	for i := range r.pds {
		r.pds[i].resident = newShelf(m.ResidentBytes, LRU, 0)
	}
	r.ttft = make([]float32, len(t.Requests))
	return r
}

const forever = time.Duration(1<<63 - 1)

// request takes one request: its images one by one, then its prompt to a P/D's queue.
func (r *run) request(i int) {
	q := &r.t.Requests[i]
	at := q.At + r.m.Fixed
	pd := r.choose(at)
	// The prompt as P/D would prefill it if it had nothing else to do: images first, then text.
	done, last, work, positions := at, at, time.Duration(0), int(q.Text)
	for _, u := range r.t.Uses(i) {
		ready := r.item(u, at, &r.pds[pd])
		positions += int(u.Bytes) / r.m.RowBytes
		cost := time.Duration(int(u.Bytes)/r.m.RowBytes) * r.m.Prefill
		last = max(last, ready)
		done = max(done, ready) + cost
		work += cost
	}
	text := time.Duration(q.Text) * r.m.Prefill
	done, work = done+text, work+text
	if r.m.Whole {
		done = last + work
	}
	if len(r.t.Uses(i)) > 0 {
		r.spans = append(r.spans, float32((last - at).Seconds()))
	}
	r.pds[pd].add(prompt{request: i, ready: done - work, work: work, pieces: r.m.pieces(positions), answer: time.Duration(max(q.Output-1, 0)) * r.m.Step})
}

// item returns when one image is at the P/D, and counts where it came from.
func (r *run) item(u Use, at time.Duration, pd *prefillState) time.Duration {
	r.out.Items++
	if ready, ok := pd.resident.get(u.Image, at, true); ok {
		r.out.Resident++
		return max(ready, at)
	}
	ready := r.deliver(u, at)
	pd.resident.put(u.Image, u.Bytes, ready)
	return ready
}

// deliver returns when an image that the P/D lacks is there.
func (r *run) deliver(u Use, at time.Duration) time.Duration {
	stored, inStore := r.store.get(u.Image, at, false)
	if r.p.Direct && inStore && stored <= at {
		return r.fromStore(u, at)
	}
	e := &r.enc[r.route(u.Image)]
	e.items++
	if e.seen != nil {
		defer func() { e.seen[u.Image] = struct{}{} }()
	}
	if ready, ok := e.cache.get(u.Image, at, true); ok {
		if ready > at {
			r.out.Joined++
		} else {
			r.out.Local++
		}
		return max(ready, at) + r.m.Hit
	}
	if inStore && (stored <= at || r.p.SingleFlight) {
		if stored > at {
			r.out.Joined++
			e.cache.put(u.Image, u.Bytes, stored)
			return stored + r.m.Hit
		}
		e.cache.put(u.Image, u.Bytes, at)
		return r.fromStore(u, at)
	}
	return r.encode(e, u, at)
}

func (r *run) fromStore(u Use, at time.Duration) time.Duration {
	r.store.get(u.Image, at, true)
	r.out.Store++
	r.out.StoreOutBytes += int64(u.Bytes)
	return at + r.m.Hit
}

// encode queues an image and publishes its embedding when it is there.
func (r *run) encode(e *encoderState, u Use, at time.Duration) time.Duration {
	cost := r.m.Host + r.m.Encode
	e.free = max(e.free, at) + cost
	e.busy += cost
	r.out.Encoded++
	r.out.EncoderSeconds += r.m.Encode.Seconds()
	e.cache.put(u.Image, u.Bytes, e.free)
	admitted := true
	if e.seen != nil {
		_, admitted = e.seen[u.Image]
	}
	if r.p.StoreBytes != 0 && admitted {
		r.store.put(u.Image, u.Bytes, e.free)
		r.out.StoreInBytes += int64(u.Bytes)
	}
	return e.free + r.m.Hit
}

// route returns the Encoder of an image.
func (r *run) route(image uint32) int {
	if r.p.Routing == Spread {
		r.turn++
		return SpreadAt(r.turn-1, len(r.enc))
	}
	if int(image) < len(r.p.Owners) {
		return r.p.Owners[image]
	}
	best, score := 0, uint64(0)
	for i := range r.enc {
		if s := mixBits(uint64(image)<<12 | uint64(i)); s > score || i == 0 {
			best, score = i, s
		}
	}
	return best
}

// SpreadAt returns which of n Encoders Spread sends an item to: the one that this many were sent before.
func SpreadAt(before, n int) int { return int(mixBits(uint64(before+1)) % uint64(n)) }

// mixBits spreads a number over 64 bits (splitmix64).
func mixBits(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// finish sums up.
func (r *run) finish() {
	o := &r.out
	o.Policy, o.Requests = r.p.Name, len(r.t.Requests)
	o.StorePeakBytes, o.StoreEvicted = r.store.peak, r.store.evicted
	length := r.t.Length().Seconds()
	if length == 0 { // all at once: no share of a time can be told
		length = math.Inf(1)
	}
	most, items := 0, 0
	for _, e := range r.enc {
		o.EncoderUse = max(o.EncoderUse, e.busy.Seconds()/length)
		most, items = max(most, e.items), items+e.items
	}
	if items > 0 {
		o.EncoderSpread = float64(most) * float64(len(r.enc)) / float64(items)
	}
	for i := range r.pds {
		o.PrefillUse = max(o.PrefillUse, r.pds[i].busy.Seconds()/length)
	}
	o.P50, o.P90, o.P99 = quantile(r.ttft, 0.5), quantile(r.ttft, 0.9), quantile(r.ttft, 0.99)
	o.SpanP50, o.SpanP90 = quantile(r.spans, 0.5), quantile(r.spans, 0.9)
}

// quantile sorts xs; of none it is 0.
func quantile(xs []float32, q float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	if !slices.IsSorted(xs) {
		slices.Sort(xs)
	}
	return float64(xs[int(q*float64(len(xs)-1)+0.5)])
}
