// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"testing"
	"time"

	"afterimage/internal/testkit/vllmconsumer"
)

// TestRelayReplicas: each data-parallel replica of a worker has memory of its own, and what is brought is at the one that
// the request runs on.
func TestRelayReplicas(t *testing.T) {
	p := newPDFleet(t, vllmconsumer.Config{Shards: 2})
	p.cfg.Routing = RoundRobin // or else a prompt stays where it was computed
	p.second = vllmconsumer.Start(t, vllmconsumer.Config{Shards: 2})
	both := Instance{Role: PrefillDecode, URL: p.pd.URL, Replicas: 2, Addresses: []string{p.consumer.Address(), p.second.Address()}}
	if _, err := p.reg.Register(both); err != nil {
		t.Fatal(err)
	}
	part := pngPart(t, 224, 224, 1)
	first := p.post(t, "r", chat(part))
	works(t, first)
	written := func(c *vllmconsumer.Consumer) bool { return c.Shards[0].Writes() > 0 && c.Shards[1].Writes() > 0 }
	for end := time.Now().Add(30 * time.Second); !written(p.consumer) || !written(p.second); {
		got := p.post(t, "r", chat(part))
		works(t, got)
		if !bytes.Equal(got.body, first.body) {
			t.Error("a hit has another answer")
		}
		if time.Now().After(end) {
			t.Fatalf("replica 0 was asked %v, replica 1 %v", p.consumer.Shards[0].Ops(), p.second.Shards[0].Ops())
		}
	}
	if n := p.missed.Load(); n > 0 {
		t.Errorf("%d requests ran where nothing had been brought to", n)
	}
}
