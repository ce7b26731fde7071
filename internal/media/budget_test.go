// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestBudgetServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b budget
		first, err := b.reserve(t.Context(), 60, 100)
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		start := func(name string, n int64, hold bool) (release func()) {
			ch := make(chan func(), 1)
			go func() {
				r, err := b.reserve(t.Context(), n, 100)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, name)
				if !hold {
					r()
				}
				ch <- r
			}()
			synctest.Wait()
			return func() { (<-ch)() }
		}
		large := start("large", 90, true)
		start("small", 20, false) // would fit, but came later
		if len(order) != 0 {
			t.Fatalf("%v overtook the queue", order)
		}
		first()
		synctest.Wait()
		if len(order) != 1 || order[0] != "large" {
			t.Fatalf("got %v, want the large claim alone", order)
		}
		large()
		synctest.Wait()
		if len(order) != 2 || b.used != 0 {
			t.Fatalf("served %v, %d bytes still used", order, b.used)
		}
	})
}

func TestBudgetWaiterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b budget
		hold, err := b.reserve(t.Context(), 60, 100)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := b.reserve(ctx, 100, 100)
			left <- err
		}()
		synctest.Wait()
		served := make(chan func(), 1)
		go func() {
			r, err := b.reserve(t.Context(), 40, 100)
			if err != nil {
				t.Error(err)
			}
			served <- r
		}()
		synctest.Wait()
		cancel() // the head of the queue goes; what it blocked fits
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want context.Canceled", err)
		}
		(<-served)()
		hold()
		hold() // a second release is a no-op
		if b.used != 0 || b.waiters.Len() != 0 {
			t.Fatalf("%d bytes and %d waiters are left", b.used, b.waiters.Len())
		}
	})
}
