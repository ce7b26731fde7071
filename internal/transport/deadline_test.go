// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// deadlined is a connection that only notes its write deadline.
type deadlined struct {
	net.Conn
	at    time.Time
	moves int
}

func (d *deadlined) SetWriteDeadline(at time.Time) error {
	d.at = at
	d.moves++
	return nil
}

// TestWriteDeadlines: each batch has its time, and little more, though not each moves the deadline.
func TestWriteDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const large = 100 << 20
		d := &deadlined{}
		l := &link{nc: d}
		for i, size := range []int{64, 64, 64, large, large, 64, 64, 1 << 20, 64} {
			if err := l.allow(size); err != nil {
				t.Fatal(err)
			}
			need := writeGrace + time.Duration(size)*time.Second/slowestBytes
			if got := time.Until(d.at); got < need || got > need+writeGrace {
				t.Errorf("batch %d of %d bytes has %v, want %v to %v", i, size, got, need, need+writeGrace)
			}
			time.Sleep(700 * time.Millisecond)
		}
		d.moves = 0
		for range 100 {
			if err := l.allow(64); err != nil {
				t.Fatal(err)
			}
		}
		if d.moves > 1 {
			t.Errorf("the deadline moved %d times in 100 small batches at once", d.moves)
		}
	})
}
