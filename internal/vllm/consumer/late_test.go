// SPDX-License-Identifier: Apache-2.0

package consumer_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/testkit/vllmconsumer"
	"afterimage/internal/vllm/consumer"
)

// TestDrainFromWaking: a shard that stood still when a write to it broke is abandoned no sooner than Drain after it is
// known to run again: only then does it read what its host has received.
func TestDrainFromWaking(t *testing.T) {
	t.Parallel()
	var connected, cancelled atomic.Int64
	at := vllmconsumer.Start(t, vllmconsumer.Config{
		Control: func(_ int, op string) vllmconsumer.Fault {
			switch op {
			case "status":
				return vllmconsumer.HangUp
			case "cancel":
				cancelled.CompareAndSwap(0, time.Now().UnixNano())
			}
			return vllmconsumer.Sound
		},
		Data: func(int, int) vllmconsumer.DataFault { return vllmconsumer.DataFault{CutAfter: 5} },
	})
	cfg := quick()
	cfg.CallTimeout, cfg.Drain = 10*time.Second, 300*time.Millisecond
	cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
		if "tcp://"+address == at.Address() {
			connected.Store(time.Now().UnixNano())
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	c := newClient(t, cfg)
	if o := c.Deliver(t.Context(), at.Address(), []consumer.Item{item(0, nil)})[0]; !errors.Is(o.Err, consumer.ErrUnsettled) {
		t.Fatalf("got %v", o)
	}
	eventually(t, "it is abandoned", func() bool { return cancelled.Load() > 0 })
	if d := time.Duration(cancelled.Load() - connected.Load()); d < cfg.Drain {
		t.Errorf("abandoned %v after the shard took a connection, want %v or more", d, cfg.Drain)
	}
	empty(t, at)
}

// TestAbandonLate: what a writer left that is gone is abandoned after the same time.
func TestAbandonLate(t *testing.T) {
	t.Parallel()
	at := vllmconsumer.Start(t, vllmconsumer.Config{Shards: 2})
	cfg := quick()
	cfg.Drain = 200 * time.Millisecond
	c := newClient(t, cfg)
	start := time.Now()
	if err := c.Abandon(t.Context(), at.Address(), []string{"x"}, true); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < cfg.Drain {
		t.Errorf("abandoned after %v, want %v or more", d, cfg.Drain)
	}
	for n, s := range at.Shards {
		if ops := strings.Join(s.Ops(), " "); !strings.HasSuffix(ops, "status cancel") {
			t.Errorf("shard %d was asked %s", n, ops)
		}
	}
}

// eventually waits until ok, however slow the machine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
