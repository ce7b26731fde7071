// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// The tests of this file assert what vLLM's tests of its registry of the same names do
// (test_epd_registry.py, test_epd_proxy_round_robin.py).

func newTestRegistry() *Registry {
	return NewRegistry(RegistryConfig{FailThreshold: 3, EvictedTTL: 900 * time.Second})
}

// register puts instances of a role in, which must be new.
func register(t *testing.T, r *Registry, role Role, urls ...string) {
	t.Helper()
	for _, u := range urls {
		if fresh, err := r.Register(Instance{Role: role, URL: u, Replicas: 1}); !fresh || err != nil {
			t.Fatalf("%s %s: new %v, %v", role, u, fresh, err)
		}
	}
}

// picks returns the next n instances of a role.
func picks(r *Registry, role Role, n int) []string {
	var out []string
	for range n {
		if e := r.pick(role, RoundRobin, shunned{}, time.Now()); e != nil {
			out = append(out, e.URL)
		}
	}
	return out
}

// round files one probe of url.
func round(r *Registry, url string, healthy bool, at time.Time) {
	e := r.find(url)
	r.probed(e, healthy, at)
	r.expire(at)
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestRegistrationIsIdempotent(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1")
	if fresh, err := r.Register(Instance{Role: Encode, URL: "e1", Replicas: 1}); fresh || err != nil {
		t.Errorf("new %v, %v", fresh, err)
	}
	same(t, "live", r.Status().Encode.Live, []string{"e1"})
}

func TestRolesAreSeparate(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1")
	register(t, r, Prefill, "p1")
	register(t, r, Decode, "d1")
	s := r.Status()
	same(t, "encode", s.Encode.Live, []string{"e1"})
	same(t, "prefill", s.Prefill.Live, []string{"p1"})
	same(t, "decode", s.Decode.Live, []string{"d1"})
	same(t, "prefill_decode", s.PrefillDecode.Live, []string{})
	if _, err := r.Register(Instance{Role: PrefillDecode, URL: "pd"}); err != ErrMixed {
		t.Errorf("got %v, want %v", err, ErrMixed)
	}
}

func TestConsumerAddressesAreKept(t *testing.T) {
	r := newTestRegistry()
	if _, err := r.Register(Instance{Role: PrefillDecode, URL: "pd", Replicas: 2, Addresses: []string{"tcp://a", "tcp://b"}}); err != nil {
		t.Fatal(err)
	}
	same(t, "addresses", r.pick(PrefillDecode, RoundRobin, shunned{}, time.Now()).Addresses, []string{"tcp://a", "tcp://b"})
}

func TestUnregisterIsTerminal(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1")
	e := r.find("e1")
	if !r.Unregister("e1") || r.Unregister("e1") {
		t.Error("it was not unregistered exactly once")
	}
	r.probed(e, true, time.Now())
	if got := r.Status().Encode; len(got.Live)+len(got.Evicted) > 0 {
		t.Errorf("a probe brought it back: %+v", got)
	}
}

func TestCursorSurvivesARegistration(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1", "e2")
	same(t, "first", picks(r, Encode, 3), []string{"e1", "e2", "e1"})
	register(t, r, Encode, "e3")
	same(t, "after e3 came", picks(r, Encode, 3), []string{"e1", "e2", "e3"})
}

func TestSingleItemsSpreadEvenly(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1", "e2", "e3")
	count := map[string]int{}
	for range 30 {
		count[r.assign([]string{"x"}, RoundRobin, shunned{}, time.Now())[0].URL]++
	}
	for u, n := range count {
		if n != 10 {
			t.Errorf("%s has %d of 30 items", u, n)
		}
	}
}

func TestEmptyRegistryYieldsNothing(t *testing.T) {
	r := newTestRegistry()
	if r.pick(Decode, RoundRobin, shunned{}, time.Now()) != nil || r.assign([]string{"x"}, Affinity, shunned{}, time.Now()) != nil {
		t.Error("an empty registry has an instance")
	}
}

func TestOneMissedProbeDoesNotEvict(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1")
	round(r, "e1", false, time.Now())
	same(t, "live", r.Status().Encode.Live, []string{"e1"})
}

func TestASuccessClearsTheRun(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1")
	for _, ok := range []bool{false, false, true, false, false} {
		round(r, "e1", ok, time.Now())
	}
	same(t, "live", r.Status().Encode.Live, []string{"e1"})
}

// evict lets url fail as many probes as it takes.
func evict(t *testing.T, r *Registry, url string, at time.Time) {
	t.Helper()
	for range 3 {
		round(r, url, false, at)
	}
	if slices.IndexFunc(r.live, func(e *entry) bool { return e.URL == url }) >= 0 {
		t.Fatalf("%s is live after 3 failed probes", url)
	}
}

func TestConsecutiveFailuresEvict(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1", "e2")
	evict(t, r, "e1", time.Now())
	same(t, "live", r.Status().Encode.Live, []string{"e2"})
	same(t, "evicted", r.Status().Encode.Evicted, []string{"e1"})
	same(t, "picks", picks(r, Encode, 2), []string{"e2", "e2"})
}

func TestARecoveredInstanceRejoins(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1", "e2")
	evict(t, r, "e1", time.Now())
	round(r, "e1", true, time.Now())
	same(t, "live", r.Status().Encode.Live, []string{"e2", "e1"})
	round(r, "e1", false, time.Now()) // its run of failures starts afresh
	same(t, "live", r.Status().Encode.Live, []string{"e2", "e1"})
}

func TestALastingOutageIsForgotten(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1")
	start := time.Now()
	evict(t, r, "e1", start)
	r.expire(start.Add(899 * time.Second))
	same(t, "evicted", r.Status().Encode.Evicted, []string{"e1"})
	r.expire(start.Add(900 * time.Second))
	same(t, "evicted", r.Status().Encode.Evicted, []string{})
	forever := NewRegistry(RegistryConfig{FailThreshold: 3})
	register(t, forever, Encode, "e1")
	evict(t, forever, "e1", start)
	forever.expire(start.Add(1000 * time.Hour))
	same(t, "evicted without a limit", forever.Status().Encode.Evicted, []string{"e1"})
}

// vLLM's main line leaves an evicted instance that registers again to the probes; a branch revived it.
func TestReRegisteringDoesNotReviveAnEvictedInstance(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1")
	evict(t, r, "e1", time.Now())
	if fresh, err := r.Register(Instance{Role: Encode, URL: "e1", Replicas: 1}); fresh || err != nil {
		t.Errorf("new %v, %v", fresh, err)
	}
	same(t, "evicted", r.Status().Encode.Evicted, []string{"e1"})
}

func TestEmptyProbeIsANoOp(t *testing.T) {
	f := newFront(t, func(c *Config) { c.Dynamic = true })
	f.probeAll(t.Context())
}

func TestCursorRotatesContiguouslyAcrossCalls(t *testing.T) {
	var got []int
	start := 0
	for _, count := range []int{1, 2, 1, 5, 0, 2} {
		var places []int
		places, start = rotate(start, 3, count)
		got = append(got, places...)
	}
	for i, at := range got {
		if at != i%3 {
			t.Fatalf("got %v, want every place in turn", got)
		}
	}
}

// The edge cases of test_epd_registry_edge_cases.py.

func TestUnregisterDuringAnInFlightProbeStaysGone(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Decode, "d1")
	e := r.find("d1") // what the probe was sent for
	r.Unregister("d1")
	for _, healthy := range []bool{true, false, false, false, true} {
		r.probed(e, healthy, time.Now())
	}
	if got := r.Status().Decode; len(got.Live)+len(got.Evicted) > 0 {
		t.Errorf("it is back: %+v", got)
	}
}

func TestADrainedInstanceIsNotRevived(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1")
	evict(t, r, "e1", time.Now())
	e := r.find("e1")
	r.Unregister("e1")
	r.probed(e, true, time.Now())
	if got := r.Status().Encode; len(got.Live)+len(got.Evicted) > 0 {
		t.Errorf("it is back: %+v", got)
	}
}

func TestReRegisteringKeepsTheOrder(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1", "e2", "e3")
	for _, addresses := range [][]string{nil, {"tcp://x"}} {
		if _, err := r.Register(Instance{Role: Encode, URL: "e2", Replicas: 1, Addresses: addresses}); err != nil {
			t.Fatal(err)
		}
		same(t, "live", r.Status().Encode.Live, []string{"e1", "e2", "e3"})
	}
}

// vLLM's main line answers 409; a branch moved the instance.
func TestARoleChangeIsRefused(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Prefill, "x")
	if _, err := r.Register(Instance{Role: Decode, URL: "x", Replicas: 1}); err != ErrRole {
		t.Errorf("got %v, want %v", err, ErrRole)
	}
	r.Unregister("x")
	register(t, r, Decode, "x")
}

func TestReRegisteringUpdatesAddresses(t *testing.T) {
	r := newTestRegistry()
	register(t, r, PrefillDecode, "pd")
	for _, a := range []string{"tcp://a", "tcp://b"} {
		if _, err := r.Register(Instance{Role: PrefillDecode, URL: "pd", Replicas: 1, Addresses: []string{a}}); err != nil {
			t.Fatal(err)
		}
		same(t, "addresses", r.find("pd").Addresses, []string{a})
	}
	// What was under way for the former record says nothing of the new one.
	evict(t, r, "pd", time.Now())
	if _, err := r.Register(Instance{Role: PrefillDecode, URL: "pd", Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	same(t, "evicted", r.Status().PrefillDecode.Evicted, []string{"pd"})
}

func TestFanOutLargerThanTheRoster(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1", "e2")
	var got []string
	for _, e := range r.assign(make([]string, 5), RoundRobin, shunned{}, time.Now()) {
		got = append(got, e.URL)
	}
	same(t, "assigned", got, []string{"e1", "e2", "e1", "e2", "e1"})
}

func TestReRegisteringClearsTheFailureRun(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Encode, "e1")
	round(r, "e1", false, time.Now())
	round(r, "e1", false, time.Now())
	if _, err := r.Register(Instance{Role: Encode, URL: "e1", Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	round(r, "e1", false, time.Now())
	same(t, "live", r.Status().Encode.Live, []string{"e1"})
}

func TestReplicasShareThePushes(t *testing.T) {
	r := newTestRegistry()
	if _, err := r.Register(Instance{Role: PrefillDecode, URL: "pd", Replicas: 3, Addresses: []string{"a", "b", "c"}}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 4 {
		got = append(got, fmt.Sprint(r.replica(r.find("pd"))))
	}
	same(t, "ranks", got, []string{"0", "1", "2", "0"})
}
