// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"sync"
	"testing"
	"testing/synctest"
)

// TestAbandonedWriterReportsItsFollowers: when the sender that others follow gives up, all of them learn
// of it. When it starts over, only those that followed do.
func TestAbandonedWriterReportsItsFollowers(t *testing.T) {
	t.Run("batch-failure", func(t *testing.T) {
		inBubble(t, 1, func(w *world, p, _ *rawPeer) {
			writer, follower := w.grant(want("x"))[0], w.grant(want("x"))[0]
			p.reserve(writer)
			p.say(frameAbandon, writer, "out of memory")
			w.wantMissing(writer, "its sender gave up: out of memory")
			w.wantMissing(follower, "its sender gave up: out of memory")
			w.wantInUse(0)
		})
	})
	t.Run("refresh", func(t *testing.T) {
		inBubble(t, 1, func(w *world, p, _ *rawPeer) {
			writer, follower := w.grant(want("x"))[0], w.grant(want("x"))[0]
			p.reserve(writer)
			p.wantAnswer(frameGrant, p.say(frameRefresh, writer, ""), statusGo)
			w.wantMissing(follower, "started over")
			w.wantWaiting(writer)
			p.deliver(writer, "x")
			w.wantObject(writer, object(t, "x"))
		})
	})
}

// TestAbandonedFollowerIsReported: a follower whose own sender gives up fails alone.
func TestAbandonedFollowerIsReported(t *testing.T) {
	inBubble(t, 1, func(w *world, p, q *rawPeer) {
		writer, follower := w.grant(want("x"))[0], w.grant(want("x"))[0]
		p.reserve(writer)
		q.say(frameAbandon, follower, "")
		w.wantMissing(follower, "its sender gave up: no reason given")
		p.deliver(writer, "x")
		w.wantObject(writer, object(t, "x"))
	})
}

// TestConsumerCancelIsNotReported: a request that gives its transfer up is no failure of others that
// wait for the same object.
func TestConsumerCancelIsNotReported(t *testing.T) {
	inBubble(t, 1, func(w *world, p, _ *rawPeer) {
		writer, follower := w.grant(want("x"))[0], w.grant(want("x"))[0]
		p.reserve(writer)
		writer.Cancel()
		w.wantWaiting(follower)
		h := data(writer) // its sender does not know, and need not
		p.write(append(h.append(nil), object(t, "x")...))
		p.wantAck(h, statusCancelled)
		w.wantObject(follower, object(t, "x"))
		w.wantMissing(writer, "cancelled")
	})
}

// TestAbandonedReportFailsTheWaitingRequest: who waits learns at once.
func TestAbandonedReportFailsTheWaitingRequest(t *testing.T) {
	inBubble(t, 1, func(w *world, p, _ *rawPeer) {
		tk := w.grant(want("x"))[0]
		var wg sync.WaitGroup
		wg.Go(func() { w.wantMissing(tk, "gave up: engine fault") })
		synctest.Wait()
		p.say(frameAbandon, tk, "engine fault")
		wg.Wait()
	})
}

// TestAbandonedReportBeforeTheRequestFailsItOnArrival: who waits later learns on arrival.
func TestAbandonedReportBeforeTheRequestFailsItOnArrival(t *testing.T) {
	inBubble(t, 1, func(w *world, p, _ *rawPeer) {
		tk := w.grant(want("x"))[0]
		p.say(frameAbandon, tk, "engine fault")
		p.wantAlive()
		w.wantMissing(tk, "gave up: engine fault")
	})
}

// TestAbandonedReportAfterReadyIsIgnored: an object that is there stays.
func TestAbandonedReportAfterReadyIsIgnored(t *testing.T) {
	inBubble(t, 1, func(w *world, p, _ *rawPeer) {
		tk := w.grant(want("x"))[0]
		p.deliver(tk, "x")
		p.say(frameAbandon, tk, "too late")
		p.wantAlive()
		w.wantDropped("late abandon", 1)
		w.wantObject(tk, object(t, "x"))
	})
}

// TestControlServerPublishesAbandonedReservations: the connection on which a sender gives up lives on,
// and each of two waiting requests hears of it once.
func TestControlServerPublishesAbandonedReservations(t *testing.T) {
	inBubble(t, 1, func(w *world, p, _ *rawPeer) {
		tks := []*ticket{w.grant(want("x"))[0], w.grant(want("x"))[0]}
		p.reserve(tks[0])
		var wg sync.WaitGroup
		for _, tk := range tks {
			wg.Go(func() { w.wantMissing(tk, "gave up") })
		}
		synctest.Wait()
		p.say(frameAbandon, tks[0], "")
		wg.Wait()
		p.wantAlive()
	})
}
