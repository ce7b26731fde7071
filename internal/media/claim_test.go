// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestBudgetParts: a part shrinks to what is used, the next in line gets what is given back, and nothing is given
// back twice.
func TestBudgetParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(100)
		first, err := b.Reserve(t.Context(), 500) // more than there is
		if err != nil || b.Used() != 100 {
			t.Fatalf("%d used, %v", b.Used(), err)
		}
		got := make(chan *Part)
		go func() {
			p, err := b.Reserve(t.Context(), 60)
			if err != nil {
				t.Error(err)
			}
			got <- p
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Reserve(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("behind one that waits: %v", err)
		}
		first.Keep(40)
		second := <-got
		first.Keep(70) // it does not grow
		if b.Used() != 100 {
			t.Errorf("%d used, want 40 and 60", b.Used())
		}
		for range 2 {
			first.Release()
			second.Release()
		}
		var none *Part
		none.Release()
		if b.Used() != 0 {
			t.Errorf("%d used after the end", b.Used())
		}
	})
}
