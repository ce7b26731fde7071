// SPDX-License-Identifier: Apache-2.0

//go:build vllm && !race

package system

import (
	"bytes"
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/testkit"
	"afterimage/internal/vllm/consumer"
)

// shardSuite is the tests of a bare consumer, which share it.
type shardSuite struct{ c *bareConsumer }

// client returns a producer of its own, with short limits.
func (s *shardSuite) client(t *testing.T, w *written) *consumer.Client {
	t.Helper()
	cfg := consumer.Config{CallTimeout: time.Second, WriteTimeout: time.Second, FollowTimeout: 2 * time.Second, Leave: time.Nanosecond, Logger: quiet}
	if w != nil {
		cfg.Dial = w.dial
	}
	c := consumer.New(cfg)
	t.Cleanup(c.Close)
	return c
}

func (s *shardSuite) deliver(t *testing.T, c *consumer.Client, it consumer.Item) consumer.Outcome {
	t.Helper()
	return c.Deliver(t.Context(), s.c.address, []consumer.Item{it})[0]
}

// want delivers and checks how it came there.
func (s *shardSuite) want(t *testing.T, c *consumer.Client, it consumer.Item, how consumer.How) {
	t.Helper()
	if o := s.deliver(t, c, it); o.Err != nil || o.How != how {
		t.Errorf("got %v, want %s", o, how)
	}
}

func (s *shardSuite) abandon(t *testing.T, c *consumer.Client, items ...consumer.Item) {
	t.Helper()
	for _, it := range items {
		if err := c.Abandon(t.Context(), s.c.address, []string{it.Transfer}, false); err != nil {
			t.Error(err)
		}
	}
}

// whole checks that the whole pool of both ranks can be had, and has what was written last.
func (s *shardSuite) whole(t *testing.T) {
	t.Helper()
	w := &written{}
	c, it := s.client(t, w), bareItem(0x11, true)
	var o consumer.Outcome
	eventually(t, "the whole pool can be had", func() bool {
		it.Transfer = fresh()
		o = s.deliver(t, c, it)
		return o.Err == nil
	})
	s.holds(t, w, it)
	s.abandon(t, c, it)
}

// holds checks that both ranks have an item's values.
func (s *shardSuite) holds(t *testing.T, w *written, it consumer.Item) {
	t.Helper()
	values, _ := it.Payload(t.Context())
	got := w.read(t)
	for n, b := range got {
		if !bytes.Equal(b, values) {
			t.Errorf("copy %d: other values than were delivered", n)
		}
	}
	if len(got) != len(s.c.ranks) {
		t.Errorf("%d ranks were written to, want %d", len(got), len(s.c.ranks))
	}
}

func (s *shardSuite) delivered(t *testing.T) {
	w := &written{}
	c := s.client(t, w)
	it := bareItem(0x21, false)
	s.want(t, c, it, consumer.Written)
	s.holds(t, w, it)
	two := []consumer.Item{bareItem(1, false), bareItem(2, false)}
	for n, o := range c.Deliver(t.Context(), s.c.address, two) {
		if o.Err != nil || o.How != consumer.Written {
			t.Errorf("item %d of a batch: %v", n, o)
		}
	}
	s.abandon(t, c, it, two[0], two[1])
}

func (s *shardSuite) cancelledBefore(t *testing.T) {
	c, it := s.client(t, nil), bareItem(1, false)
	s.abandon(t, c, it)
	if o := s.deliver(t, c, it); o.Err == nil {
		t.Errorf("a transfer that was given up before is delivered: %v", o)
	}
}

func (s *shardSuite) twice(t *testing.T) {
	c, it := s.client(t, nil), bareItem(1, false)
	s.want(t, c, it, consumer.Written)
	if o := s.deliver(t, c, it); o.Err != nil || o.How == consumer.Written {
		t.Errorf("the same transfer again: %v", o)
	}
	other := bareItem(2, false)
	other.Transfer = it.Transfer
	if o := s.deliver(t, c, other); !errors.As(o.Err, new(*consumer.RefusedError)) {
		t.Errorf("another embedding under the same transfer: %v", o)
	}
	wrong := bareItem(3, false)
	wrong.Size = 4
	if o := s.deliver(t, c, wrong); !errors.As(o.Err, new(*consumer.RefusedError)) {
		t.Errorf("a size that is not that of the shape: %v", o)
	}
	s.abandon(t, c, it)
}

func (s *shardSuite) full(t *testing.T) {
	c, it := s.client(t, nil), bareItem(1, true)
	s.want(t, c, it, consumer.Written)
	var refused *consumer.RefusedError
	if o := s.deliver(t, c, bareItem(2, false)); !errors.As(o.Err, &refused) || !refused.Full() {
		t.Errorf("got %v, want that the pool is full", o)
	}
	s.abandon(t, c, it)
}

// held is a delivery that has reserved at both ranks and is about to write.
func (s *shardSuite) held(t *testing.T, it consumer.Item) (end func(error) consumer.Outcome) {
	t.Helper()
	reserved, values, done := make(chan struct{}), make(chan error), make(chan consumer.Outcome, 1)
	payload := it.Payload
	it.Payload = func(ctx context.Context) ([]byte, error) {
		close(reserved)
		if err := <-values; err != nil {
			return nil, err
		}
		return payload(ctx)
	}
	c := s.client(t, nil)
	go func() { done <- c.Deliver(context.WithoutCancel(t.Context()), s.c.address, []consumer.Item{it})[0] }()
	<-reserved
	return func(err error) consumer.Outcome {
		values <- err
		return <-done
	}
}

// follower is another transfer of the same embedding.
func follower(it consumer.Item) consumer.Item {
	it.Transfer = fresh()
	return it
}

// follow delivers what another one writes, and returns once it waits for that one at both ranks.
func (s *shardSuite) follow(t *testing.T, it consumer.Item) (*consumer.Client, <-chan consumer.Outcome) {
	t.Helper()
	w := &written{}
	c, got := s.client(t, w), make(chan consumer.Outcome, 1)
	go func() { got <- c.Deliver(context.WithoutCancel(t.Context()), s.c.address, []consumer.Item{it})[0] }()
	eventually(t, "it waits for the other writer", w.waits)
	return c, got
}

func (s *shardSuite) anotherWriter(t *testing.T) {
	it := bareItem(5, false)
	end := s.held(t, it)
	second := follower(it)
	c, got := s.follow(t, second)
	if o := end(nil); o.Err != nil || o.How != consumer.Written {
		t.Errorf("the writer: %v", o)
	}
	if o := <-got; o.Err != nil || o.How != consumer.Followed {
		t.Errorf("the follower: %v", o)
	}
	third := follower(it)
	s.want(t, c, third, consumer.Resident)
	s.abandon(t, c, it, second, third)
}

func (s *shardSuite) writerGivesUp(t *testing.T) {
	it := bareItem(5, false)
	end := s.held(t, it)
	c, got := s.follow(t, follower(it))
	gone := errors.New("gone")
	if o := end(gone); !errors.Is(o.Err, gone) {
		t.Errorf("the writer: %v", o)
	}
	if o := <-got; !errors.Is(o.Err, consumer.ErrLost) {
		t.Errorf("the follower: %v", o)
	}
	again := follower(it)
	if o := s.deliver(t, c, again); o.Err != nil {
		t.Errorf("the next one: %v", o)
	}
	s.abandon(t, c, again)
}

// killedWriter: what a killed producer holds blocks its embedding until a successor gives it up.
func (s *shardSuite) killedWriter(t *testing.T) {
	it := bareItem(5, false)
	end := s.held(t, it)
	defer end(errors.New("killed"))
	c := s.client(t, nil)
	if o := s.deliver(t, c, follower(it)); o.Err == nil {
		t.Errorf("delivered beside a writer that never ends: %v", o)
	}
	if err := c.Abandon(t.Context(), s.c.address, []string{it.Transfer}, true); err != nil {
		t.Error(err)
	}
	next := follower(it)
	s.want(t, c, next, consumer.Written)
	s.abandon(t, c, next)
}

// frozenRank: a rank that stands still serves the reserve when it goes on, and is told then that nobody wants it.
func (s *shardSuite) frozenRank(t *testing.T) {
	c := s.client(t, nil)
	first := bareItem(1, false)
	s.want(t, c, first, consumer.Written) // so that connections are kept
	s.c.ranks[1].Freeze()
	o := s.deliver(t, c, bareItem(2, false))
	s.c.ranks[1].Signal(syscall.SIGCONT)
	if !errors.Is(o.Err, consumer.ErrUnsettled) {
		t.Errorf("got %v", o)
	}
	s.abandon(t, c, first)
}

// frozenWrite: what is on its way to a worker that stands still never comes to the next owner of the memory.
func (s *shardSuite) frozenWrite(t *testing.T) {
	lost := bareItem(0xee, true)
	o := s.deliver(t, s.client(t, &written{before: s.c.freeze}), lost)
	if !errors.Is(o.Err, consumer.ErrUnsettled) {
		t.Errorf("got %v", o)
	}
	s.c.thaw()
	s.whole(t) // the memory's next owner, as soon as it can be had
}

func (s *shardSuite) killedInWrite(t *testing.T) {
	o := s.deliver(t, s.client(t, &written{before: func() { s.c.each((*testkit.Process).Kill) }}), bareItem(1, true))
	if o.Err == nil {
		t.Errorf("got %v", o)
	}
	s.c.each((*testkit.Process).Start)
	s.up(t)
}

func (s *shardSuite) goneRank(t *testing.T) {
	c := s.client(t, nil)
	s.c.ranks[1].Kill()
	start := time.Now()
	if o := s.deliver(t, c, bareItem(1, true)); o.Err == nil {
		t.Errorf("got %v", o)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("a rank that is gone cost %v", d)
	}
	s.c.ranks[1].Start()
	s.up(t)
}

// up waits until both ranks take calls again.
func (s *shardSuite) up(t *testing.T) {
	t.Helper()
	c := s.client(t, nil)
	for end := time.Now().Add(vllmStart); ; time.Sleep(200 * time.Millisecond) {
		_, err := c.Check(t.Context(), s.c.address)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
