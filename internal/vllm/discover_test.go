// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/testkit/vllmconsumer"
)

// relayed posts a picture until no Encoder is asked for it.
func (p *pdFleet) relayed(t *testing.T, part string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		before := len(p.encoder.calls())
		works(t, p.post(t, "r", chat(part)))
		if len(p.encoder.calls()) == before {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the picture goes to the Encoder again and again")
		}
	}
}

// TestRelayReadsNames: a relay that is told no names reads them off an Encoder, and anew when one comes that stores under
// others.
func TestRelayReadsNames(t *testing.T) {
	p := newPDFleetKnowing(t, vllmconsumer.Config{}, embedding.Namespace{})
	p.relayed(t, pngPart(t, 224, 224, 1))
	other := embedding.Namespace{Prefix: "v2", Model: "other/m", Revision: "r", Encoder: "encoder:default", DType: embedding.BFloat16, Protocol: embedding.V3}
	p.names.Store(&other)
	p.came(Encode)
	p.relayed(t, pngPart(t, 224, 224, 2)) // which is stored under these names alone
}

// keysOf answers a search with lists in turn, then with the last.
type keysOf [][]embedding.Key

func (k *keysOf) Find(context.Context, embedding.Identifier) ([]embedding.Key, error) {
	now := (*k)[0]
	if len(*k) > 1 {
		*k = (*k)[1:]
	}
	return now, nil
}

// TestReadNamespace: what an Encoder stored is waited for; two owners of a name are an error, and so is nobody.
func TestReadNamespace(t *testing.T) {
	key := relayNamespace.Key("x")
	f := func(ctx context.Context, words string, lists ...[]embedding.Key) {
		t.Helper()
		keys := keysOf(lists)
		n, err := ReadNamespace(ctx, &keys, "x")
		switch {
		case words == "" && (err != nil || n.Key("y") != relayNamespace.Key("y")):
			t.Errorf("%v: %+v, %v", lists, n, err)
		case words != "" && (err == nil || !strings.Contains(err.Error(), words)):
			t.Errorf("%v: %v, want %q", lists, err, words)
		}
	}
	f(t.Context(), "", []embedding.Key{key})
	f(t.Context(), "", nil, []embedding.Key{key})
	f(t.Context(), "2 keys", []embedding.Key{key, "team@" + key})
	f(t.Context(), "no key", []embedding.Key{"other@id:x"})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	f(gone, "cross_encoder_cache", nil)
	keys := keysOf{nil}
	if _, err := ReadNamespace(gone, &keys, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestDiscoverAsksAgain: registrations of Encoders, and no others, are a reason to look again.
func TestDiscoverAsksAgain(t *testing.T) {
	f := &Front{encoderCame: make(chan struct{}, 1)}
	for _, role := range []Role{Prefill, Decode, PrefillDecode} {
		f.came(role)
	}
	if len(f.encoderCame) != 0 {
		t.Error("a worker that is no Encoder is a reason")
	}
	for range 3 {
		f.came(Encode)
	}
	if len(f.encoderCame) != 1 {
		t.Error("an Encoder is no reason")
	}
	d := newFront(t, func(c *Config) { c.Dynamic, c.AdminKey = true, "k" })
	body := []byte(`{"role":"encode","url":"http://127.0.0.1:1"}`)
	for range 2 { // a process that is started anew registers as it did
		if a := d.send(t, "POST", "/instances", body, "X-API-Key", "k"); a.status != 200 || len(d.encoderCame) != 1 {
			t.Fatalf("%d %s, %d notes", a.status, a.body, len(d.encoderCame))
		}
		<-d.encoderCame
	}
}
