// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/embedding"
)

// TestResponseReportsEveryPreparedTransfer: a request with two media parts has a transfer for each,
// though both be one picture, and each sender hears of its own.
func TestResponseReportsEveryPreparedTransfer(t *testing.T) {
	f := func(name string, first, second string) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(w *world, p, q *rawPeer) {
				tks := w.grant(want(first), want(second))
				if tks[0].id == tks[1].id {
					t.Error("two parts have one transfer")
				}
				p.deliver(tks[0], first)
				q.deliver(tks[1], second)
				w.wantObject(tks[0], object(t, first))
				w.wantObject(tks[1], object(t, second))
			})
		})
	}
	f("video+audio", "a", "b")
	f("same+same", "a", "a")
}

// TestFinishCancelsUnconsumedBindingsEvenWithoutMatchingFeature: a transfer that its request never came
// to use is cancelled where it comes from.
func TestFinishCancelsUnconsumedBindingsEvenWithoutMatchingFeature(t *testing.T) {
	inBubble(t, 1, func(w *world, p, _ *rawPeer) {
		tk := w.grant(want("x"))[0]
		p.reserve(tk)
		tk.Cancel()
		p.wantAnswer(frameCancel, data(tk), 0)
		w.wantInUse(0)
	})
}

// TestRepeatedTransferBindingIsPreparedOnce: two Sends of one transfer and one buffer write it once.
func TestRepeatedTransferBindingIsPreparedOnce(t *testing.T) { sharedSend(t, true) }

// TestSharedTransferIsReportedToBothRequests: both callers of such Sends hear that it is there.
func TestSharedTransferIsReportedToBothRequests(t *testing.T) { sharedSend(t, false) }

// sharedSend has a transfer sent twice at once; with leave, the first caller goes away meanwhile.
func sharedSend(t *testing.T, leave bool) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		s := w.sender()
		defer s.Close()
		checking, proceed := make(chan struct{}, 2), make(chan struct{})
		open := w.open
		w.open = func(wt Want, obj []byte, c *embedding.Checker) (embedding.Meta, error) {
			checking <- struct{}{}
			<-proceed
			return open(wt, obj, c)
		}
		tk := w.grant(want("x"))[0]
		buf := w.buf(object(t, "x"))
		defer buf.Release()
		first, cancel := context.WithCancel(t.Context())
		defer cancel()
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for i, ctx := range []context.Context{first, t.Context()} {
			wg.Go(func() { errs[i] = s.Send(ctx, tk.Grant(), buf) })
			synctest.Wait()
		}
		if leave {
			cancel()
			synctest.Wait()
		}
		close(proceed)
		wg.Wait()
		if errs[1] != nil || leave != errors.Is(errs[0], context.Canceled) {
			t.Errorf("sends ended with %v and %v", errs[0], errs[1])
		}
		w.wantObject(tk, object(t, "x"))
		if n := len(checking); n != 1 {
			t.Errorf("%d objects were written, want 1", n)
		}
	})
}

// TestConflictingTransferIsNotReportedAsASharedBinding: another buffer under the same transfer fails
// alone.
func TestConflictingTransferIsNotReportedAsASharedBinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		s := w.sender()
		defer s.Close()
		proceed := make(chan struct{})
		open := w.open
		w.open = func(wt Want, obj []byte, c *embedding.Checker) (embedding.Meta, error) {
			<-proceed
			return open(wt, obj, c)
		}
		tk := w.grant(want("x"))[0]
		a, b := w.buf(object(t, "x")), w.buf(object(t, "y"))
		defer a.Release()
		defer b.Release()
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Send(t.Context(), tk.Grant(), a); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := s.Send(t.Context(), tk.Grant(), b); !errors.Is(err, ErrRejected) {
			t.Errorf("got %v", err)
		}
		close(proceed)
		wg.Wait()
		w.wantObject(tk, object(t, "x"))
	})
}

// TestFinishDoesNotReportAnUnpreparedRequestBinding: nobody is told of the end of a transfer that nobody
// has announced.
func TestFinishDoesNotReportAnUnpreparedRequestBinding(t *testing.T) {
	inBubble(t, 1, func(w *world, p, q *rawPeer) {
		w.grant(want("x"))[0].Cancel()
		p.wantAlive() // the pong is the first that either hears
		q.wantAlive()
	})
}

// TestFinishPreservesExtraTransferLoadingForAnotherRequest: what one request no longer wants, and
// another waits for, goes on; and if it does not come in time, the other fails.
func TestFinishPreservesExtraTransferLoadingForAnotherRequest(t *testing.T) {
	inBubble(t, 1, func(w *world, p, _ *rawPeer) {
		first, other := w.grant(want("x"))[0], w.grant(want("x"))[0]
		h := data(first)
		obj := object(t, "x")
		p.write(append(h.append(nil), obj[:100]...))
		synctest.Wait()
		first.Cancel()
		p.write(obj[100:])
		p.wantAck(h, statusCancelled)
		w.wantObject(other, obj)

		first, other = w.grant(want("x"))[0], w.grant(want("x"))[0]
		p.reserve(first)
		first.Cancel()
		for range 31 {
			time.Sleep(time.Second)
			written := make(chan struct{})
			go func() { // both sides may have something to say
				defer close(written)
				p.write(header{Type: framePing}.append(nil))
			}()
			if h, _ := p.read(); h.Type == frameCancel { // at the end of the other's life
				p.read()
			}
			<-written
		}
		w.wantMissing(other, "nobody waited")
		w.wantInUse(0)
	})
}

// TestPrimaryBindingBorrowedByAnotherRequestSurvivesCleanup: the transfer that others follow stays good
// for them when its own request ends before, or while, it is written.
func TestPrimaryBindingBorrowedByAnotherRequestSurvivesCleanup(t *testing.T) {
	f := func(name string, written int) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(w *world, p, _ *rawPeer) {
				primary, borrower := w.grant(want("x"))[0], w.grant(want("x"))[0]
				p.reserve(primary)
				bytes := append(data(primary).append(nil), object(t, "x")...)
				p.write(bytes[:written])
				synctest.Wait()
				primary.Cancel()
				p.write(bytes[written:])
				p.wantAck(data(primary), statusCancelled)
				w.wantObject(borrower, object(t, "x"))
			})
		})
	}
	f("finish", 0)
	f("free", headerBytes+100)
}

// TestCompletedLoadHasBoundedResidencyAfterAbortOrEviction: an object that nobody fetches is held no
// longer than its grant lives, and not at all when its request ends.
func TestCompletedLoadHasBoundedResidencyAfterAbortOrEviction(t *testing.T) {
	inBubble(t, 2, func(w *world, p, _ *rawPeer) {
		aborted, forgotten := w.grant(want("a"))[0], w.grant(want("b"))[0]
		p.deliver(aborted, "a")
		p.deliver(forgotten, "b")
		aborted.Cancel()
		w.wantInUse(int64(objectBytes(testRows)))
		time.Sleep(31 * time.Second)
		w.wantInUse(0)
	})
}

// TestActiveRequestAccumulatesReadyFeaturesBeforeAllocation: objects that came stay until the last one
// of their request has.
func TestActiveRequestAccumulatesReadyFeaturesBeforeAllocation(t *testing.T) {
	inBubble(t, 3, func(w *world, p, _ *rawPeer) {
		names := []string{"a", "b", "c"}
		tks := w.grant(want("a"), want("b"), want("c"))
		for i, n := range names {
			p.deliver(tks[i], n)
			time.Sleep(9 * time.Second)
		}
		for i, n := range names {
			w.wantObject(tks[i], object(t, n))
		}
	})
}

// TestPendingBorrowerKeepsReadyOutputAfterFirstRequestFinishes: the object outlives the request that it
// came for, while another has a claim.
func TestPendingBorrowerKeepsReadyOutputAfterFirstRequestFinishes(t *testing.T) {
	inBubble(t, 1, func(w *world, p, _ *rawPeer) {
		first, borrower := w.grant(want("x"))[0], w.grant(want("x"))[0]
		p.deliver(first, "x")
		w.wantObject(first, object(t, "x"))
		late := w.grant(want("x"))[0] // joins what is there
		first.Cancel()
		w.wantObject(borrower, object(t, "x"))
		w.wantObject(late, object(t, "x"))
		w.wantInUse(0)
	})
}
