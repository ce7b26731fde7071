// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"testing"

	"afterimage/internal/testkit/vllmconsumer"
)

// TestRelayReplicas: each data-parallel replica of a worker has memory of its own, and what is brought is at the one that
// the request runs on.
func TestRelayReplicas(t *testing.T) {
	p := newPDFleet(t, vllmconsumer.Config{Shards: 2})
	p.second = vllmconsumer.Start(t, vllmconsumer.Config{Shards: 2})
	both := Instance{Role: PrefillDecode, URL: p.pd.URL, Replicas: 2, Addresses: []string{p.consumer.Address(), p.second.Address()}}
	if _, err := p.reg.Register(both); err != nil {
		t.Fatal(err)
	}
	part := pngPart(t, 224, 224, 1)
	first := p.post(t, "r", chat(part))
	works(t, first)
	p.encoder.Close()
	for n := range 4 {
		got := p.post(t, "r", chat(part))
		works(t, got)
		if !bytes.Equal(got.body, first.body) {
			t.Errorf("hit %d: another answer", n)
		}
	}
	for n, c := range []*vllmconsumer.Consumer{p.consumer, p.second} {
		if c.Shards[0].Writes() == 0 || c.Shards[1].Writes() == 0 {
			t.Errorf("nothing was written to replica %d", n)
		}
	}
}
