// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"math"
	"time"
)

// bucket is a token bucket: it fills at a rate up to its size. Its zero value with a size of 0 limits nothing.
type bucket struct {
	rate, size float64 // tokens per second, tokens
	level      float64 // may be below 0, see spend
	at         time.Time
}

// shape sets rate and size; a bucket that limited nothing before starts full.
func (b *bucket) shape(now time.Time, rate, size float64) {
	if b.rate == rate && b.size == size {
		return
	}
	b.fill(now)
	if b.size == 0 {
		b.level = size
	}
	b.rate, b.size, b.at = rate, size, now
	b.level = min(b.level, size)
}

func (b *bucket) fill(now time.Time) {
	if past := now.Sub(b.at).Seconds(); past > 0 {
		b.level = min(b.size, b.level+past*b.rate)
		b.at = now
	}
}

// dust is what sums of fractions may lack of a token that is there.
const dust = 1e-9

// wait returns how long it takes until n tokens are there; 0 if they are.
func (b *bucket) wait(now time.Time, n float64) time.Duration {
	if b.size == 0 {
		return 0
	}
	b.fill(now)
	if b.level >= n-dust {
		return 0
	}
	return until(n-b.level, b.rate)
}

// spend takes n tokens, whether they are there or not: what cannot be known before is paid for afterwards.
func (b *bucket) spend(now time.Time, n float64) {
	if b.size > 0 {
		b.fill(now)
		b.level -= n
	}
}

// full returns how long it takes until the bucket is full.
func (b *bucket) full(now time.Time) time.Duration {
	b.fill(now)
	return until(b.size-b.level, b.rate)
}

// maxWait is the longest wait that is told to a client.
const maxWait = 24 * time.Hour

func until(tokens, rate float64) time.Duration {
	if s := tokens / rate; s < maxWait.Seconds() {
		return time.Duration(math.Ceil(s * float64(time.Second)))
	}
	return maxWait
}
