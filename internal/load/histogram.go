// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"math/bits"
	"time"
)

// A Histogram counts times in buckets whose width is at most 1/64 of their value, from 1 us to 9 hours.
// Histograms of several runs can be added. Its zero value is empty.
//
// Times are meant to be counted from when a request was due, not from when it was sent: then a server
// that stands still is charged for every request that it kept from being sent, and no correction for
// coordinated omission is needed.
type Histogram struct {
	Counts map[int]int64 `json:"counts"` // by bucket
	N      int64         `json:"n"`
	MaxUS  int64         `json:"max_us"`
	SumUS  int64         `json:"sum_us"`
}

const (
	subBits = 6 // 64 buckets per power of two
	maxUS   = 1 << 35
)

// bucketOf returns the bucket of a time in microseconds.
func bucketOf(us int64) int {
	if us < 1<<subBits {
		return int(us)
	}
	shift := bits.Len64(uint64(us)) - 1 - subBits
	return (shift+1)<<subBits | int(us>>shift)&(1<<subBits-1)
}

// upper returns the largest time of a bucket, in microseconds.
func upper(bucket int) int64 {
	shift := bucket>>subBits - 1
	if shift < 0 {
		return int64(bucket)
	}
	return (int64(1)<<subBits|int64(bucket)&(1<<subBits-1))<<shift + int64(1)<<shift - 1
}

// Add counts a time. Negative times count as 0.
func (h *Histogram) Add(d time.Duration) {
	if h.Counts == nil {
		h.Counts = map[int]int64{}
	}
	us := min(max(d.Microseconds(), 0), maxUS)
	h.Counts[bucketOf(us)]++
	h.N++
	h.SumUS += us
	h.MaxUS = max(h.MaxUS, us)
}

// Merge adds what other has counted.
func (h *Histogram) Merge(other *Histogram) {
	if h.Counts == nil {
		h.Counts = map[int]int64{}
	}
	for b, n := range other.Counts {
		h.Counts[b] += n
	}
	h.N += other.N
	h.SumUS += other.SumUS
	h.MaxUS = max(h.MaxUS, other.MaxUS)
}

// Quantile returns the time in milliseconds that a share q of all times does not exceed, NaN if there are none.
func (h *Histogram) Quantile(q float64) float64 {
	if h.N == 0 {
		return math.NaN()
	}
	rank := max(int64(math.Ceil(q*float64(h.N))), 1)
	seen := int64(0)
	for b := range bucketOf(maxUS) + 1 {
		if seen += h.Counts[b]; seen >= rank {
			return float64(min(upper(b), h.MaxUS)) / 1000
		}
	}
	return float64(h.MaxUS) / 1000
}

// Mean returns the mean in milliseconds, NaN if there are none.
func (h *Histogram) Mean() float64 {
	if h.N == 0 {
		return math.NaN()
	}
	return float64(h.SumUS) / float64(h.N) / 1000
}

// Curve returns points (milliseconds, share of times that are at most that) for a plot.
func (h *Histogram) Curve() [][2]float64 {
	var out [][2]float64
	seen := int64(0)
	for b := range bucketOf(maxUS) + 1 {
		if n := h.Counts[b]; n > 0 {
			seen += n
			out = append(out, [2]float64{float64(min(upper(b), h.MaxUS)) / 1000, float64(seen) / float64(h.N)})
		}
	}
	return out
}
