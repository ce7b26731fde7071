// SPDX-License-Identifier: Apache-2.0

package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/testkit/vllmconsumer"
	"afterimage/internal/vllm/consumer"
)

// once has f happen to the first request of a kind at shard 1 of 2.
func once(op string, f vllmconsumer.Fault) func(int, string) vllmconsumer.Fault {
	var done atomic.Bool
	return func(shard int, got string) vllmconsumer.Fault {
		if shard == 1 && got == op && done.CompareAndSwap(false, true) {
			return f
		}
		return vllmconsumer.Sound
	}
}

// TestFaults: whatever befalls a delivery at one shard, it is an error, both shards are as before, and the next
// delivery is well.
func TestFaults(t *testing.T) {
	f := func(name string, cfg vllmconsumer.Config) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.Shards = 2
			at := vllmconsumer.Start(t, cfg)
			c := newClient(t, quick())
			lost := item(0, nil)
			if o := c.Deliver(t.Context(), at.Address(), []consumer.Item{lost})[0]; o.Err == nil {
				t.Error("a delivery with a fault is well")
			}
			at.Thaw()
			empty(t, at)
			works(t, c, at, consumer.Written, item(0, nil))
			if at.Shards[0].Ready(lost.Transfer) != nil || at.Shards[1].Ready(lost.Transfer) != nil {
				t.Error("the transfer that failed is ready")
			}
		})
	}
	for _, op := range []string{"reserve", "complete"} {
		f("no answer to "+op, vllmconsumer.Config{Control: once(op, vllmconsumer.HangUp)})
		f("served and silent at "+op, vllmconsumer.Config{Control: once(op, vllmconsumer.Silence)})
		f("served later: "+op, vllmconsumer.Config{Control: once(op, vllmconsumer.Late)})
		f("nonsense at "+op, vllmconsumer.Config{Control: once(op, vllmconsumer.Nonsense)})
	}
	cut := func(fault vllmconsumer.DataFault) vllmconsumer.Config {
		return vllmconsumer.Config{Data: func(shard, write int) vllmconsumer.DataFault {
			if shard == 1 && write == 0 {
				return fault
			}
			return vllmconsumer.DataFault{}
		}}
	}
	f("cut at the first byte", cut(vllmconsumer.DataFault{CutAfter: 1}))
	f("cut within", cut(vllmconsumer.DataFault{CutAfter: 1000}))
	f("cut after the last byte", cut(vllmconsumer.DataFault{CutAfter: rows * cols * 2}))
	f("no acknowledgement", cut(vllmconsumer.DataFault{NoStatus: true}))
	f("rejected", cut(vllmconsumer.DataFault{Reject: true}))
}

// TestDead: a consumer that is not there is an error at once; one that dies in any step, in the time of a call.
func TestDead(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"", "peers", "reserve", "write", "complete"} {
		var at *vllmconsumer.Consumer
		kill := func() { go at.Stop() }
		at = vllmconsumer.Start(t, vllmconsumer.Config{
			Control: func(_ int, got string) vllmconsumer.Fault {
				if got == op {
					kill()
					return vllmconsumer.Silence
				}
				return vllmconsumer.Sound
			},
			Data: func(int, int) (f vllmconsumer.DataFault) {
				if op == "write" {
					kill()
					f.CutAfter = 1
				}
				return f
			},
		})
		if op == "" {
			at.Stop()
		}
		c := newClient(t, quick())
		if o := c.Deliver(t.Context(), at.Address(), []consumer.Item{item(0, nil)})[0]; o.Err == nil {
			t.Errorf("dead at %q: no error", op)
		}
	}
}

// TestDrain: the transfer of a broken write is abandoned no sooner than what is on its way has had time to arrive.
func TestDrain(t *testing.T) {
	t.Parallel()
	var cutAt, cancelAt atomic.Int64
	at := vllmconsumer.Start(t, vllmconsumer.Config{
		Control: func(_ int, op string) vllmconsumer.Fault {
			if op == "cancel" {
				cancelAt.Store(time.Now().UnixNano())
			}
			return vllmconsumer.Sound
		},
		Data: func(int, int) vllmconsumer.DataFault {
			cutAt.Store(time.Now().UnixNano())
			return vllmconsumer.DataFault{CutAfter: 5}
		},
	})
	cfg := quick()
	cfg.Drain = 200 * time.Millisecond
	newClient(t, cfg).Deliver(t.Context(), at.Address(), []consumer.Item{item(0, nil)})
	if d := time.Duration(cancelAt.Load() - cutAt.Load()); d < cfg.Drain {
		t.Errorf("abandoned %v after the write broke, want %v or more", d, cfg.Drain)
	}
	empty(t, at)
}

// TestPayloads: values that cannot be had, or of another size, are never sent.
func TestPayloads(t *testing.T) {
	t.Parallel()
	at := vllmconsumer.Start(t, vllmconsumer.Config{Shards: 2})
	c := newClient(t, quick())
	gone := errors.New("gone")
	for name, payload := range map[string]func() ([]byte, error){
		"none": func() ([]byte, error) { return nil, gone }, "short": func() ([]byte, error) { return values(0)[1:], nil },
		"long": func() ([]byte, error) { return append(values(0), 0), nil }, "empty": func() ([]byte, error) { return nil, nil },
	} {
		good, bad := item(1, nil), item(0, nil)
		bad.Payload = func(context.Context) ([]byte, error) { return payload() }
		out := c.Deliver(t.Context(), at.Address(), []consumer.Item{good, bad})
		if out[0].Err != nil || out[1].Err == nil || name == "none" && !errors.Is(out[1].Err, gone) {
			t.Errorf("%s: got %v", name, out)
		}
		if at.Shards[0].Ready(good.Transfer) == nil || at.Shards[0].Ready(bad.Transfer) != nil {
			t.Errorf("%s: the good item is to be there, and the bad one not", name)
		}
		if err := c.Abandon(t.Context(), at.Address(), []string{good.Transfer}, false); err != nil {
			t.Error(err)
		}
		empty(t, at)
	}
}

// TestRefused: what the consumer refuses it says, and the rest of the request is served.
func TestRefused(t *testing.T) {
	t.Parallel()
	at := vllmconsumer.Start(t, vllmconsumer.Config{PoolBytes: rows * cols * 2})
	c := newClient(t, quick())
	first, second := item(0, nil), item(1, nil)
	out := c.Deliver(t.Context(), at.Address(), []consumer.Item{first, second})
	var refused *consumer.RefusedError
	if out[0].Err != nil || !errors.As(out[1].Err, &refused) || !refused.Full() {
		t.Errorf("got %v, want the second to find the pool full", out)
	}
	other := item(1, nil)
	other.Transfer = first.Transfer
	if o := c.Deliver(t.Context(), at.Address(), []consumer.Item{other})[0]; !errors.As(o.Err, &refused) || !strings.Contains(refused.Text, "conflicting") {
		t.Errorf("a transfer id of another payload: got %v", o)
	}
	// What was refused is not cancelled: the id is another transfer's.
	if !bytes.Equal(at.Shards[0].Ready(first.Transfer), values(0)) {
		t.Error("the transfer that has the id is gone")
	}
	repeated := first
	if o := c.Deliver(t.Context(), at.Address(), []consumer.Item{repeated})[0]; o.Err != nil || o.How == consumer.Written {
		t.Errorf("a transfer id of the same payload: got %v", o)
	}
	wrong := item(2, nil)
	wrong.Size = 4
	wrong.Payload = func(context.Context) ([]byte, error) { return append(values(2), values(2)...), nil }
	if o := c.Deliver(t.Context(), at.Address(), []consumer.Item{wrong})[0]; !errors.As(o.Err, &refused) || !strings.Contains(refused.Text, "nbytes") {
		t.Errorf("a size that is not that of the shape: got %v", o)
	}
}

// TestUnfit: consumers that cannot be written to safely are not written to, left alone, and named once.
func TestUnfit(t *testing.T) {
	t.Parallel()
	f := func(name, words string, cfg vllmconsumer.Config) {
		t.Helper()
		at := vllmconsumer.Start(t, cfg)
		var log bytes.Buffer
		limits := quick()
		limits.Logger = slog.New(slog.NewTextHandler(&log, nil))
		limits.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			if !strings.HasPrefix(address, "127.0.0.1:") {
				t.Errorf("%s: %s was dialled", name, address)
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
		c := newClient(t, limits)
		if _, err := c.Check(t.Context(), at.Address()); !errors.Is(err, consumer.ErrUnfit) {
			t.Errorf("%s: the check says %v", name, err)
		}
		if o := c.Deliver(t.Context(), at.Address(), []consumer.Item{item(0, nil)})[0]; !errors.Is(o.Err, consumer.ErrUnfit) {
			t.Errorf("%s: got %v", name, o)
		}
		empty(t, at)
		if o := c.Deliver(t.Context(), at.Address(), []consumer.Item{item(0, nil)})[0]; !errors.Is(o.Err, consumer.ErrLeftAlone) {
			t.Errorf("%s, again: got %v", name, o)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), words) {
			t.Errorf("%s: %d warnings, want one with %q: %s", name, n, words, log.String())
		}
		if n := at.Shards[0].Writes(); n != 0 {
			t.Errorf("%s: %d writes", name, n)
		}
	}
	segment := func(change func(doc map[string]any)) vllmconsumer.Config { return vllmconsumer.Config{Segment: change} }
	f("RDMA", "MC_FORCE_TCP=1", segment(func(doc map[string]any) { doc["protocol"] = "rdma"; delete(doc, "tcp_data_port") }))
	f("old", "0.3.12", segment(func(doc map[string]any) { delete(doc, "tcp_proto_version") }))
	f("data elsewhere", "another host", segment(func(doc map[string]any) { doc["tcp_data_host"] = "192.0.2.1" }))
	f("session elsewhere", "another host", vllmconsumer.Config{Session: func(string) string { return "192.0.2.1:25" }})
}

// TestOutside: a destination that the shard did not announce is not written to.
func TestOutside(t *testing.T) {
	t.Parallel()
	at := vllmconsumer.Start(t, vllmconsumer.Config{Segment: func(doc map[string]any) {
		doc["buffers"] = []any{map[string]any{"addr": 4096, "length": 1 << 40}}
	}})
	if o := newClient(t, quick()).Deliver(t.Context(), at.Address(), []consumer.Item{item(0, nil)})[0]; o.Err == nil || !strings.Contains(o.Err.Error(), "announced") {
		t.Errorf("got %v", o)
	}
	if n := at.Shards[0].Writes(); n != 0 {
		t.Errorf("%d writes", n)
	}
	empty(t, at)
}

// TestHung: a consumer that stands still costs the time of its calls once, and then no more; what it serves late is
// taken back.
func TestHung(t *testing.T) {
	t.Parallel()
	at := vllmconsumer.Start(t, vllmconsumer.Config{Control: func(_ int, op string) vllmconsumer.Fault {
		if op == "peers" {
			return vllmconsumer.Sound
		}
		return vllmconsumer.Late
	}})
	cfg := quick()
	cfg.Leave = time.Minute
	c := newClient(t, cfg)
	if o := c.Deliver(t.Context(), at.Address(), []consumer.Item{item(0, nil)})[0]; !errors.Is(o.Err, consumer.ErrUnsettled) {
		t.Errorf("got %v", o)
	}
	if o := c.Deliver(t.Context(), at.Address(), []consumer.Item{item(0, nil)})[0]; !errors.Is(o.Err, consumer.ErrLeftAlone) {
		t.Errorf("got %v", o)
	}
	at.Thaw()
	eventually(t, "two of peers, the reserve and at least one cancel", func() bool { return len(at.Shards[0].Ops()) >= 4 })
	empty(t, at)
}

// TestCancelledMeanwhile: a complete that frees what was written, since the consumer's request left meanwhile, is no
// delivery.
func TestCancelledMeanwhile(t *testing.T) {
	t.Parallel()
	it := item(0, nil)
	var at *vllmconsumer.Consumer
	at = vllmconsumer.Start(t, vllmconsumer.Config{Control: func(_ int, op string) vllmconsumer.Fault {
		if op == "complete" {
			at.Shards[0].Answer([]byte(`{"op":"cancel","transfer_id":"` + it.Transfer + `","reservation_id":""}`))
		}
		return vllmconsumer.Sound
	}})
	if o := newClient(t, quick()).Deliver(t.Context(), at.Address(), []consumer.Item{it})[0]; o.Err == nil {
		t.Error("a transfer that was cancelled is delivered")
	}
	empty(t, at)
}

// TestSettle: a consumer that cannot be told at once that a transfer is given up is told later.
func TestSettle(t *testing.T) {
	t.Parallel()
	var cancels, peers atomic.Int64
	at := vllmconsumer.Start(t, vllmconsumer.Config{Control: func(_ int, op string) vllmconsumer.Fault {
		switch {
		case op == "reserve":
			return vllmconsumer.Silence
		case op == "cancel" && cancels.Add(1) <= 2, op == "peers" && peers.Add(1) == 2:
			return vllmconsumer.HangUp
		}
		return vllmconsumer.Sound
	}})
	c := newClient(t, quick())
	if o := c.Deliver(t.Context(), at.Address(), []consumer.Item{item(0, nil)})[0]; !errors.Is(o.Err, consumer.ErrUnsettled) {
		t.Errorf("got %v", o)
	}
	empty(t, at)
	peers.Store(1)
	c.Forget(at.Address())
	if err := c.Abandon(t.Context(), at.Address(), []string{"x"}, false); !errors.Is(err, consumer.ErrUnsettled) {
		t.Errorf("got %v", err)
	}
	told := cancels.Load()
	eventually(t, "the consumer is told again", func() bool { return cancels.Load() > told })
}

// TestCheck: a look at a consumer leaves nothing behind.
func TestCheck(t *testing.T) {
	t.Parallel()
	at := vllmconsumer.Start(t, vllmconsumer.Config{Shards: 3})
	c := newClient(t, quick())
	if n, err := c.Check(t.Context(), at.Address()); n != 3 || err != nil {
		t.Errorf("%d shards, %v; want 3", n, err)
	}
	empty(t, at)
	if at.Shards[0].Writes()+at.Shards[1].Writes() > 0 {
		t.Error("something was written")
	}
	at.Stop()
	if _, err := c.Check(t.Context(), at.Address()); err == nil {
		t.Error("a consumer that is gone is well")
	}
}
