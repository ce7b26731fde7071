// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"afterimage/internal/embedding"
)

const (
	// samples is how many measurements of one size are remembered; the oldest goes first, so an
	// estimate follows a change of load within as many reads.
	samples = 32
	// minSamples is how many it takes to believe them.
	minSamples = 4
	// quantile of reads after which one is late.
	quantile = 0.95
	// probe lets one in so many reads that are expected to lose go ahead, to notice when they no longer
	// would.
	probe = 16
)

// Estimator knows how long reads and encodes of a size took of late. Its methods may be called from any
// goroutine.
type Estimator struct {
	mu            sync.Mutex // guards the fields below
	read, encoded [64]window // by the bits of the size in bytes
}

// window holds the last measurements of sizes in [2^(n-1), 2^n).
type window struct {
	took  [samples]time.Duration
	bytes int64 // sum of the sizes of took
	sizes [samples]int64
	n     uint // measurements so far
}

// NewEstimator returns an Estimator that knows nothing.
func NewEstimator() *Estimator { return &Estimator{} }

// ObserveRead says that reading n bytes took d.
func (e *Estimator) ObserveRead(n int64, d time.Duration) { e.observe(&e.read, n, d) }

// ObserveEncode says that making a payload of n bytes took d, the wait for the engine included: that
// is what the next one costs.
func (e *Estimator) ObserveEncode(n int64, d time.Duration) { e.observe(&e.encoded, n, d) }

func (e *Estimator) observe(ws *[64]window, n int64, d time.Duration) {
	if n <= 0 || d < 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	w := &ws[bits.Len64(uint64(n))]
	at := w.n % samples
	w.bytes += n - w.sizes[at]
	w.took[at], w.sizes[at] = d, n
	w.n++
}

// Read returns how long reading n bytes is expected to take; false when too little is known.
func (e *Estimator) Read(n int64) (time.Duration, bool) { return e.estimate(&e.read, n) }

// Encode returns how long making a payload of n bytes is expected to take; false when too little is
// known.
func (e *Estimator) Encode(n int64) (time.Duration, bool) { return e.estimate(&e.encoded, n) }

// estimate takes the mean of the nearest sizes that are known well, smaller ones first, in proportion to
// the size. Fixed costs make that too much for a size that is larger than those, and too little for one
// that is smaller; both err towards what was done before.
func (e *Estimator) estimate(ws *[64]window, n int64) (time.Duration, bool) {
	if n <= 0 {
		return 0, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	at := bits.Len64(uint64(n))
	for i := at; i > 0; i-- {
		if ws[i].n >= minSamples {
			return ws[i].mean(n, i == at), true
		}
	}
	for i := at + 1; i < len(ws); i++ {
		if ws[i].n >= minSamples {
			return ws[i].mean(n, false), true
		}
	}
	return 0, false
}

// mean returns the mean time, of the same size or scaled from another to n bytes.
func (w *window) mean(n int64, same bool) time.Duration {
	sum, count := time.Duration(0), min(w.n, samples)
	for _, d := range w.took[:count] {
		sum += d
	}
	if same {
		return sum / time.Duration(count)
	}
	return time.Duration(float64(sum) * float64(n) / float64(w.bytes))
}

// late returns when a read of n bytes is later than nearly all of its size were.
func (e *Estimator) late(n int64) (time.Duration, bool) {
	if n <= 0 {
		return 0, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	w := &e.read[bits.Len64(uint64(n))]
	if w.n < minSamples {
		return 0, false
	}
	sorted := w.took // a copy
	some := sorted[:min(w.n, samples)]
	slices.Sort(some)
	return some[int(quantile*float64(len(some)-1)+0.5)], true
}

// loses says that reading an object of n bytes is expected to take longer than making it.
func (r *Resolver) loses(n int64, c embedding.Contract) bool {
	if !r.cfg.ReadOrRecompute {
		return false
	}
	read, ok := r.cfg.Estimator.Read(n)
	if !ok {
		return false
	}
	encode, ok := r.cfg.Estimator.Encode(int64(c.PayloadBytes()))
	return ok && read > encode && r.skipped.Add(1)%probe != 0
}
