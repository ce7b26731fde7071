// SPDX-License-Identifier: Apache-2.0

package supervise

import "time"

// backoff doubles from min to max. It belongs to one goroutine.
type backoff struct {
	min, max time.Duration
	cur      time.Duration
}

// next returns how long to wait before the next start.
func (b *backoff) next() time.Duration {
	switch {
	case b.cur == 0:
		b.cur = b.min
	case b.cur < b.max:
		b.cur = min(2*b.cur, b.max)
	}
	return b.cur
}

func (b *backoff) reset() { b.cur = 0 }
