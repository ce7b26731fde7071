// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A place comes free, the wait is over, the client leaves, the queue is full: each ends the wait at its very
// moment.
func TestQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1, share{requests: 3}, 10*time.Second)
		leave, waited, err := q.enter(t.Context(), "a", 1, 0)
		if err != nil || waited != 0 {
			t.Fatal(waited, err)
		}
		start := time.Now()
		end := func(name string, ctx context.Context, check func(err error, after time.Duration)) {
			go func() {
				leave, waited, err := q.enter(ctx, name, 1, 0)
				if got := time.Since(start); waited != got {
					t.Errorf("%s: told of %v, waited %v", name, waited, got)
				}
				check(err, time.Since(start))
				if err == nil {
					leave()
				}
			}()
			synctest.Wait()
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		end("leaves", ctx, func(err error, after time.Duration) {
			if err != gone || after != time.Second {
				t.Errorf("left: %v after %v", err, after)
			}
		})
		end("next", t.Context(), func(err error, after time.Duration) {
			if err != nil || after != 5*time.Second {
				t.Errorf("next: %v after %v", err, after)
			}
		})
		end("late", t.Context(), func(err error, after time.Duration) {
			if err != nil || after != 5*time.Second { // next left at once
				t.Errorf("late: %v after %v", err, after)
			}
		})
		_, _, err = q.enter(t.Context(), "late", 1, 0)
		var busy *busyError
		if !errors.As(err, &busy) || busy.reason != errFull || busy.retry != time.Second {
			t.Errorf("full: %v", err)
		}
		time.Sleep(time.Second)
		cancel(gone)
		synctest.Wait()
		time.Sleep(4 * time.Second)
		leave()
		synctest.Wait()
		if taken, waiting := q.stats(); taken != 0 || waiting != (share{}) {
			t.Errorf("at the end %d in, %+v waiting", taken, waiting)
		}
	})
}

func TestQueueWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1, share{requests: 3}, 10*time.Second)
		leave, _, _ := q.enter(t.Context(), "a", 1, 0)
		defer leave()
		go func() {
			time.Sleep(7 * time.Second)
			_, _, _ = q.enter(t.Context(), "b", 1, 0)
		}()
		_, waited, err := q.enter(t.Context(), "a", 1, 0)
		var busy *busyError
		if !errors.As(err, &busy) || busy.reason != errWaited || waited != 10*time.Second || busy.retry != 3*time.Second {
			t.Errorf("%v after %v, retry after %v; want the wait of the one in front", err, waited, busy.retry)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

// A request that gives up at the very moment at which it is let in gives its place back; one that was dropped at
// that moment has none.
func TestGivingUpTooLate(t *testing.T) {
	q := newQueue(1, share{requests: 2}, time.Second)
	leave, _, err := q.enter(t.Context(), "a", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = q.line.join("a", 1, 0, time.Now())
	late, _ := q.line.join("a", 1, 0, time.Now())
	last, _ := q.line.join("b", 1, 0, time.Now()) // in the place of late
	if q.giveUp(late); late.dropped == nil || q.line.taken != 1 || q.line.waiting.requests != 2 {
		t.Errorf("dropped: %v, %d taken, %d wait", late.dropped, q.line.taken, q.line.waiting.requests)
	}
	leave()
	leave()
	if q.giveUp(last); !last.ended() || q.line.taken != 0 || q.line.waiting != (share{}) {
		t.Errorf("let in %v, %d taken, %d wait", last.ended(), q.line.taken, q.line.waiting.requests)
	}
}

// However requests end, their places are there for others.
func TestQueueLosesNoPlace(t *testing.T) {
	q := newQueue(2, share{requests: 100}, time.Millisecond)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for n := range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration((i+n)%7)*100*time.Microsecond)
				if leave, _, err := q.enter(ctx, string(rune('a'+i%5)), 1, 0); err == nil {
					if taken, _ := q.stats(); taken > 2 {
						t.Errorf("%d places taken of 2", taken)
					}
					leave()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if taken, waiting := q.stats(); taken != 0 || waiting != (share{}) {
		t.Errorf("at the end %d places are taken and %+v wait", taken, waiting)
	}
}

// A thousand tenants, one of whom sends as much as all others: each of the others is served as if it were not
// there.
func TestThousandTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tenants, hog = 1000, 1000
		q := newQueue(10, share{requests: tenants + hog}, time.Hour)
		var mu sync.Mutex
		worst := time.Duration(0)
		served := 0
		for range 10 {
			leave, _, _ := q.enter(t.Context(), "hog", 1, 0)
			time.AfterFunc(time.Second, leave)
		}
		for range hog {
			go func() {
				leave, _, err := q.enter(t.Context(), "hog", 1, 0)
				if err == nil {
					time.AfterFunc(time.Second, leave)
				}
			}()
		}
		synctest.Wait()
		for i := range tenants {
			go func() {
				leave, waited, err := q.enter(t.Context(), string(rune(0x1000+i)), 1, 0)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				served++
				worst = max(worst, waited)
				mu.Unlock()
				time.AfterFunc(time.Second, leave)
			}()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		// 1001 tenants take turns at 10 places of a second each.
		if served != tenants || worst > 102*time.Second {
			t.Errorf("%d served, the last after %v", served, worst)
		}
	})
}
