// SPDX-License-Identifier: Apache-2.0

package consumer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/proxy"
	"afterimage/internal/testkit/vllmconsumer"
	"afterimage/internal/vllm/consumer"
)

const rows, cols = 64, 128

// values are those of picture n.
func values(n int) []byte { return bytes.Repeat([]byte{byte(n + 1), 0x3f}, rows*cols) }

var transfers atomic.Int64

// item is picture n under a fresh transfer id; fetched, if not nil, counts calls of its Payload.
func item(n int, fetched *atomic.Int64) consumer.Item {
	return consumer.Item{
		Transfer: fmt.Sprintf("%032x", transfers.Add(1)), Hash: fmt.Sprintf("picture-%d", n), Rows: rows, Cols: cols, DType: "bfloat16", Size: 2,
		Payload: func(context.Context) ([]byte, error) {
			if fetched != nil {
				fetched.Add(1)
			}
			return values(n), nil
		},
	}
}

// quick are limits for tests that run into them.
func quick() consumer.Config {
	return consumer.Config{
		CallTimeout: time.Second, WriteTimeout: time.Second, FollowTimeout: time.Second,
		Drain: 50 * time.Millisecond, Leave: time.Nanosecond, Logger: slog.New(slog.DiscardHandler),
	}
}

func newClient(t *testing.T, cfg consumer.Config) *consumer.Client {
	t.Helper()
	c := consumer.New(cfg)
	t.Cleanup(c.Close)
	return c
}

// works delivers pictures and checks that they are at all shards.
func works(t *testing.T, c *consumer.Client, at *vllmconsumer.Consumer, how consumer.How, items ...consumer.Item) {
	t.Helper()
	for i, o := range c.Deliver(t.Context(), at.Address(), items) {
		if o.Err != nil || o.How != how {
			t.Errorf("item %d: %v, want %s", i, o, how)
		}
		for n, s := range at.Shards {
			want, _ := items[i].Payload(t.Context())
			if got := s.Ready(items[i].Transfer); !bytes.Equal(got, want) {
				t.Errorf("item %d, shard %d: %d bytes that are not those that were delivered", i, n, len(got))
			}
		}
	}
}

// empty waits until no shard holds anything.
func empty(t *testing.T, at *vllmconsumer.Consumer) {
	t.Helper()
	eventually(t, "nothing is held", func() bool {
		return !slices.ContainsFunc(at.Shards, func(s *vllmconsumer.Shard) bool { return s.InUse() > 0 })
	})
}

// TestDeliver: one item and several, to one shard and to several, over kept connections too.
func TestDeliver(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2, 4} {
		at := vllmconsumer.Start(t, vllmconsumer.Config{Shards: shards})
		c := newClient(t, consumer.Config{})
		works(t, c, at, consumer.Written, item(0, nil))
		works(t, c, at, consumer.Written, item(1, nil), item(2, nil), item(3, nil))
		for _, s := range at.Shards {
			if ops := fmt.Sprint(s.Ops()); ops != "[peers reserve complete reserve_batch complete_batch]" && ops != "[reserve complete reserve_batch complete_batch]" {
				t.Errorf("the calls were %s", ops)
			}
			if n := s.InUse(); n != 4*rows*cols*2 {
				t.Errorf("%d bytes are held for 4 pictures", n)
			}
		}
	}
}

// TestResident: what the consumer has costs no bytes, from nowhere.
func TestResident(t *testing.T) {
	t.Parallel()
	at := vllmconsumer.Start(t, vllmconsumer.Config{Shards: 2})
	c := newClient(t, consumer.Config{})
	first := item(0, nil)
	works(t, c, at, consumer.Written, first)
	for _, s := range at.Shards {
		s.Use(first.Transfer)
	}
	var fetched atomic.Int64
	again := item(0, &fetched)
	if o := c.Deliver(t.Context(), at.Address(), []consumer.Item{again})[0]; o.Err != nil || o.How != consumer.Resident {
		t.Errorf("got %v", o)
	}
	if n := fetched.Load(); n != 0 {
		t.Errorf("the values were fetched %d times", n)
	}
	at.Shards[1].Use(again.Transfer)
	at.Shards[1].Evict() // one shard lacks it from here on
	half := item(0, &fetched)
	works(t, c, at, consumer.Written, half)
	if n, w := fetched.Load(), at.Shards[0].Writes(); n < 1 || w != 1 {
		t.Errorf("%d fetches, %d writes to the shard that had it", n, w)
	}
}

// TestFollow: what another writer is at is waited for, and not written.
func TestFollow(t *testing.T) {
	t.Parallel()
	at := vllmconsumer.Start(t, vllmconsumer.Config{})
	s := at.Shards[0]
	c := newClient(t, quick())
	reserve := func(id string) (reservation string) {
		var r struct {
			Result struct {
				ID string `json:"reservation_id"`
			} `json:"result"`
		}
		_ = json.Unmarshal([]byte(s.Answer(fmt.Appendf(nil, `{"op":"reserve","transfer_id":%q,"mm_hash":"picture-0","nbytes":%d,"shape":[%d,%d],"dtype":"bfloat16"}`,
			id, rows*cols*2, rows, cols))), &r)
		return r.Result.ID
	}
	deliver := func() <-chan consumer.Outcome {
		out := make(chan consumer.Outcome, 1)
		asked := len(s.Ops())
		go func() { out <- c.Deliver(context.Background(), at.Address(), []consumer.Item{item(0, nil)})[0] }()
		eventually(t, "a reserve, and a first status or more", func() bool { return len(s.Ops()) >= asked+3 })
		return out
	}
	theirs := reserve("theirs")
	out := deliver()
	s.Answer(fmt.Appendf(nil, `{"op":"complete","transfer_id":"theirs","reservation_id":%q}`, theirs))
	if o := <-out; o.Err != nil || o.How != consumer.Followed || s.Writes() != 0 {
		t.Errorf("got %v after %d writes", o, s.Writes())
	}
	reserve("another") // the one before is ready and not shared
	out = deliver()
	s.Answer([]byte(`{"op":"cancel","transfer_id":"another","reservation_id":"","abandon":true}`))
	if o := <-out; !errors.Is(o.Err, consumer.ErrLost) {
		t.Error("the writer gave up, and its follower was told that all is well")
	}
	reserve("slow")
	if o := <-deliver(); o.Err == nil {
		t.Error("the writer never ended, and its follower was told that all is well")
	}
}

// TestTogether: several at once, of equal and of different pictures; each embedding is written once as long as nobody
// has used it.
func TestTogether(t *testing.T) {
	t.Parallel()
	at := vllmconsumer.Start(t, vllmconsumer.Config{Shards: 2, PoolBytes: 8 << 20})
	cfg := consumer.Config{}
	a, b := newClient(t, cfg), newClient(t, cfg)
	var all sync.WaitGroup
	for n := range 24 {
		all.Go(func() {
			it := item(n%3, nil)
			if o := []*consumer.Client{a, b}[n%2].Deliver(t.Context(), at.Address(), []consumer.Item{it})[0]; o.Err != nil {
				t.Errorf("delivery %d: %v", n, o.Err)
			}
			for _, s := range at.Shards {
				if !bytes.Equal(s.Ready(it.Transfer), values(n%3)) {
					t.Errorf("delivery %d: other values", n)
				}
			}
		})
	}
	all.Wait()
}

// TestKept: connections that the consumer closed meanwhile are not used, so that its restart fails nobody.
func TestKept(t *testing.T) {
	t.Parallel()
	at := vllmconsumer.Start(t, vllmconsumer.Config{})
	var mu sync.Mutex
	var dialled []net.Conn
	cfg := quick()
	cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
		nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		mu.Lock()
		defer mu.Unlock()
		dialled = append(dialled, nc)
		return nc, err
	}
	c := newClient(t, cfg)
	for range 5 {
		works(t, c, at, consumer.Written, item(0, nil))
	}
	mu.Lock()
	kept := slices.Clone(dialled)
	mu.Unlock()
	if n := len(kept); n != 3 { // control, handshake, data
		t.Errorf("%d connections were made for 5 deliveries in a row, want 3", n)
	}
	at.HangUpAll()
	eventually(t, "the ends of the connections have arrived", func() bool { return !slices.ContainsFunc(kept, proxy.Quiet) })
	works(t, c, at, consumer.Written, item(0, nil))
}

// TestAbandon: a delivery whose request failed is taken back.
func TestAbandon(t *testing.T) {
	t.Parallel()
	at := vllmconsumer.Start(t, vllmconsumer.Config{Shards: 3})
	c := newClient(t, quick())
	it := item(0, nil)
	works(t, c, at, consumer.Written, it)
	if err := c.Abandon(t.Context(), at.Address(), []string{it.Transfer}, false); err != nil {
		t.Error(err)
	}
	empty(t, at)
	if o := c.Deliver(t.Context(), at.Address(), []consumer.Item{it})[0]; o.Err == nil {
		t.Error("a transfer that was abandoned was delivered")
	}
	at.Stop()
	if err := c.Abandon(t.Context(), at.Address(), []string{"x"}, false); !errors.Is(err, consumer.ErrUnsettled) {
		t.Errorf("got %v", err)
	}
}
