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
	p.came(Encode, p.encoder.URL)
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
	f := &Front{arrivals: newArrivals()}
	for _, role := range []Role{Prefill, Decode, PrefillDecode} {
		f.came(role, "http://127.0.0.1:1")
	}
	if len(f.arrivals.note) != 0 {
		t.Error("a worker that is no Encoder is a reason")
	}
	for range 3 {
		f.came(Encode, "http://127.0.0.1:1")
	}
	if len(f.arrivals.note) != 1 || len(f.arrivals.list()) != 1 {
		t.Error("an Encoder is no reason")
	}
	d := newFront(t, func(c *Config) { c.Dynamic, c.AdminKey = true, "k" })
	if d.came(Encode, "http://127.0.0.1:1"); d.arrivals != nil {
		t.Error("without a relay, arrivals are kept that nobody asks for")
	}
	d.arrivals = newArrivals()
	body := []byte(`{"role":"encode","url":"http://127.0.0.1:1"}`)
	for range 2 { // a process that is started anew registers as it did
		if a := d.send(t, "POST", "/instances", body, "X-API-Key", "k"); a.status != 200 || len(d.arrivals.note) != 1 {
			t.Fatalf("%d %s, %d notes", a.status, a.body, len(d.arrivals.note))
		}
		<-d.arrivals.note
	}
}

// An Encoder that registers anew as the process that it was is not asked for a picture again; another process at its
// address is, and so is one that does not tell which process it is.
func TestUnchangedEncoderIsNotProbed(t *testing.T) {
	p := newPDFleetKnowing(t, vllmconsumer.Config{}, embedding.Namespace{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	d := discovery{Front: p.Front, read: map[string]reading{}}
	f := func(what, start string, want int) {
		t.Helper()
		p.encoder.startAt(start)
		before := len(p.encoder.calls())
		if err := d.lookAt(ctx, p.encoder.URL); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n := len(p.encoder.calls()) - before; n != want {
			t.Errorf("%s: %d pictures to encode, want %d", what, n, want)
		}
	}
	p.relayed(t, pngPart(t, 224, 224, 1)) // the front's own look is over
	f("the first time", "1.7e+09", 1)
	f("the same process", "1.7e+09", 0)
	f("another process", "1.70000001e+09", 1)
	f("the same process again", "1.70000001e+09", 0)
	f("a process that tells nothing", "", 1)
	f("which may be another", "", 1)
	other := embedding.Namespace{Model: "m", Encoder: "another", DType: embedding.BFloat16, Protocol: embedding.V3}
	if err := p.relay.SetNamespace(other); err != nil {
		t.Fatal(err)
	}
	f("a process that tells", "2e+09", 1)
	p.relayed(t, pngPart(t, 224, 224, 3)) // under the names of the Encoder that came last
	if err := p.relay.SetNamespace(other); err != nil {
		t.Fatal(err)
	}
	f("the same, after Encoders with other names", "2e+09", 0)
	p.relayed(t, pngPart(t, 224, 224, 4))
}

// An Encoder that has come is looked at until it tells its names, a bounded number of times; one that is gone is forgotten.
func TestArrivals(t *testing.T) {
	f := newFront(t, func(c *Config) { c.Dynamic = true })
	f.arrivals = newArrivals()
	d := discovery{Front: f.Front, read: map[string]reading{"http://127.0.0.1:9": {}}}
	const url = "http://127.0.0.1:1" // where nobody listens
	f.arrivals.add(url)
	if err := d.look(t.Context()); err != nil || len(f.arrivals.list()) != 0 {
		t.Errorf("one that is not registered: %v, left are %v", err, f.arrivals.list())
	}
	if _, err := f.reg.Register(Instance{Role: Encode, URL: url}); err != nil {
		t.Fatal(err)
	}
	f.arrivals.add(url)
	for n := range maxArrivalTries {
		if err := d.look(t.Context()); err == nil || !strings.Contains(err.Error(), url) {
			t.Errorf("look %d at an Encoder that is away: %v", n, err)
		}
		if left := len(f.arrivals.list()); (left == 0) != (n == maxArrivalTries-1) {
			t.Errorf("%d are left after look %d", left, n)
		}
	}
	if err := d.look(t.Context()); err != nil {
		t.Errorf("with nobody left: %v", err)
	}
}

// Another process that comes while its predecessor is looked at is looked at, too, however that ends.
func TestArrivalDuringALook(t *testing.T) {
	for name, end := range map[string]func(*arrivals, arrival){"learnt": (*arrivals).drop, "failed": (*arrivals).failed} {
		t.Run(name, func(t *testing.T) {
			a := newArrivals()
			a.add("http://127.0.0.1:1")
			before := a.list()[0]
			a.add("http://127.0.0.1:1")
			for range maxArrivalTries {
				end(a, before)
			}
			if left := a.list(); len(left) != 1 || left[0].tries != 0 {
				t.Errorf("left are %v, want the second with no look in vain", left)
			}
		})
	}
}
