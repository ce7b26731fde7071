// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/transport"
)

// countTicket counts how often it is cancelled.
type countTicket struct {
	mu        sync.Mutex
	cancelled int
}

func (c *countTicket) Grant() control.Grant { return control.Grant{} }
func (c *countTicket) Wait(context.Context) (*arena.Buf, embedding.Meta, error) {
	return nil, embedding.Meta{}, transport.ErrMissing
}

func (c *countTicket) Cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelled++
}

func (c *countTicket) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cancelled
}

// TestReleaseOvertakesPrepare releases a name before its prepare call has its grants.
func TestReleaseOvertakesPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		entry := func() *prepared { return &prepared{supplies: []supply{{ticket: &countTicket{}}}} }
		b.release("gone", time.Minute)
		if err := b.add("gone", entry(), time.Minute); err == nil {
			t.Error("a name that was released got its grants")
		}
		b.release("old", time.Minute)
		time.Sleep(2 * time.Minute) // on the test's clock
		synctest.Wait()
		if err := b.add("old", entry(), time.Minute); err != nil {
			t.Errorf("a release is remembered for ever: %v", err)
		}
		for i := range 2 * maxReleased {
			b.release(strconv.Itoa(i), time.Minute)
		}
		if n := len(b.released.names); n > maxReleased {
			t.Errorf("%d releases are remembered, at most %d should be", n, maxReleased)
		}
		b.close()
	})
}

func TestBook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		one, two, three := &countTicket{}, &countTicket{}, &countTicket{}
		entry := func(c *countTicket) *prepared { return &prepared{supplies: []supply{{ticket: c}}} }
		for name, c := range map[string]*countTicket{"taken": one, "expires": two} {
			if err := b.add(name, entry(c), time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.add("taken", entry(three), time.Minute); err == nil {
			t.Error("a name was prepared twice")
		}
		if b.take("unknown") != nil || b.take("") != nil {
			t.Error("took what was never added")
		}
		if b.take("taken") == nil || b.take("taken") != nil {
			t.Error("an entry is taken once")
		}
		time.Sleep(2 * time.Minute) // on the test's clock
		synctest.Wait()
		if b.size() != 0 || one.count() != 0 || two.count() != 1 {
			t.Errorf("%d entries left; taken: %d cancels, expired: %d, want 0, 0, 1", b.size(), one.count(), two.count())
		}
		if err := b.add("left", entry(three), time.Minute); err != nil {
			t.Fatal(err)
		}
		b.close()
		b.close()
		if three.count() != 1 {
			t.Errorf("%d cancels at close, want 1", three.count())
		}
		if err := b.add("late", entry(three), time.Minute); err == nil {
			t.Error("added to a closed book")
		}
		if b.take("left") != nil {
			t.Error("took from a closed book")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if three.count() != 1 {
			t.Errorf("%d cancels after the time has passed, want 1", three.count())
		}
	})
}

// wants is a turn that keeps what it was asked for.
type wants struct {
	transport.Turn
	got []transport.Want
}

func (w *wants) Grant(_ context.Context, all []transport.Want) ([]transport.Ticket, error) {
	w.got = append(w.got, all...)
	out := make([]transport.Ticket, len(all))
	for i := range out {
		out[i] = &countTicket{}
	}
	return out, nil
}

// TestForcedGrantsAreFresh: what must be encoded afresh is not what somebody else's Encoder is bringing.
func TestForcedGrantsAreFresh(t *testing.T) {
	r := &wants{}
	p := newWorker(t, fakeText{template: plainTemplate})
	items := []control.PrepareItem{{Bytes: 32}, {Bytes: 32, Force: true}}
	if err := p.grant(t.Context(), r, items, []int{0, 1}, make([]supply, 2)); err != nil {
		t.Fatal(err)
	}
	if r.got[0].Fresh || !r.got[1].Fresh {
		t.Errorf("asked for %+v", r.got)
	}
}
