// SPDX-License-Identifier: Apache-2.0

package consumer_test

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"afterimage/internal/testkit/vllmconsumer"
	"afterimage/internal/vllm/consumer"
)

// TestRandomFaults: with faults anywhere, whatever Deliver calls delivered is at all shards with the right values, and of
// what it does not nothing is left.
func TestRandomFaults(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // guards rng and calm
	rng, calm := rand.New(rand.NewPCG(7, 7)), false
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		if calm {
			return n - 1
		}
		return rng.IntN(n)
	}
	at := vllmconsumer.Start(t, vllmconsumer.Config{
		Shards: 2, PoolBytes: 8 << 20,
		Control: func(int, string) vllmconsumer.Fault {
			switch draw(40) {
			case 0:
				return vllmconsumer.HangUp
			case 1:
				return vllmconsumer.Silence
			case 2:
				return vllmconsumer.Nonsense
			}
			return vllmconsumer.Sound
		},
		Data: func(int, int) (f vllmconsumer.DataFault) {
			switch draw(20) {
			case 0:
				f.CutAfter = 1 + draw(rows*cols*2)
			case 1:
				f.NoStatus = true
			case 2:
				f.Reject = true
			}
			return f
		},
	})
	cfg := quick()
	cfg.CallTimeout, cfg.WriteTimeout = 500*time.Millisecond, 500*time.Millisecond
	c := newClient(t, cfg)
	var delivered, failed sync.Map // by transfer
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for n := range 15 {
				items := []consumer.Item{item(100*w+n, nil), item(100*w+n+50, nil)}[:1+n%2]
				for i, o := range c.Deliver(t.Context(), at.Address(), items) {
					if o.Err != nil {
						failed.Store(items[i].Transfer, true)
						continue
					}
					delivered.Store(items[i].Transfer, values(100*w+n+50*i))
				}
			}
		})
	}
	all.Wait()
	mu.Lock()
	calm = true
	mu.Unlock()
	var good []string
	delivered.Range(func(id, want any) bool {
		good = append(good, id.(string))
		for n, s := range at.Shards {
			if !bytes.Equal(s.Ready(id.(string)), want.([]byte)) {
				t.Errorf("transfer %s has other values at shard %d", id, n)
			}
		}
		return true
	})
	lost := 0
	failed.Range(func(id, _ any) bool { lost++; return true })
	if len(good) == 0 || lost == 0 {
		t.Fatalf("%d delivered, %d failed: the faults are too many or too few", len(good), lost)
	}
	if err := c.Abandon(t.Context(), at.Address(), good, false); err != nil {
		t.Error(err)
	}
	empty(t, at)
}
