// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"net/http"
	"testing"
	"time"
)

// TestHealthOfAStaticFleet: every worker is asked, and the answer is in the form of vLLM's proxy.
func TestHealthOfAStaticFleet(t *testing.T) {
	f := newStatic(t, 2, false, says(200, completion), nil)
	check := func(status int, want string) {
		t.Helper()
		if got := f.send(t, http.MethodGet, "/health", nil); got.status != status || string(got.body) != want {
			t.Errorf("got %d %s, want %d %s", got.status, got.body, status, want)
		}
	}
	check(200, `{"proxy":"healthy","encode_cluster":"healthy","prefill_cluster":"empty","decode_cluster":"healthy"}`)
	f.e[1].setHealth(503)
	check(503, `{"proxy":"healthy","encode_cluster":"unhealthy","prefill_cluster":"empty","decode_cluster":"healthy"}`)
	f.d[0].Close()
	check(503, `{"proxy":"healthy","encode_cluster":"unhealthy","prefill_cluster":"empty","decode_cluster":"unhealthy"}`)
}

// TestReady: a fleet is ready when it can answer text.
func TestReady(t *testing.T) {
	f := dynamic(t, nil)
	f1 := func(ready bool) {
		t.Helper()
		if err := f.Ready(); (err == nil) != ready {
			t.Errorf("ready %v, want %v: %v", err == nil, ready, err)
		}
	}
	f1(false)
	register(t, f.reg, Encode, "http://e")
	f1(false)
	register(t, f.reg, Decode, "http://d")
	f1(false)
	register(t, f.reg, Prefill, "http://p")
	f1(true)
	f.reg.Unregister("http://d")
	f.reg.Unregister("http://p")
	register(t, f.reg, PrefillDecode, "http://pd")
	f1(true)
}

// TestProbesRun by themselves: a worker that goes is evicted, and is back when it answers.
func TestProbesRun(t *testing.T) {
	f := newStatic(t, 1, false, says(200, completion), func(c *Config) { c.ProbeInterval = time.Millisecond })
	await := func(live, evicted int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			s := f.reg.Status().Encode
			if len(s.Live) == live && len(s.Evicted) == evicted {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("live %v, evicted %v", s.Live, s.Evicted)
			}
		}
	}
	await(1, 0)
	f.e[0].setHealth(500)
	await(0, 1)
	f.e[0].setHealth(200)
	await(1, 0)
}

// TestProfile: one worker of each role is told, and what they say comes back.
func TestProfile(t *testing.T) {
	f := newStatic(t, 1, true, says(200, completion), nil)
	for s, role := range map[*stub]string{f.e[0]: "encode", f.d[0]: "decode"} {
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/start_profile" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			_, _ = w.Write([]byte(`{"is":"` + role + `"}`))
		})
	}
	f.p[0].Config.Handler = http.NotFoundHandler()
	got := f.send(t, http.MethodPost, "/start_profile", []byte(`{}`))
	if want := `{"decode":{"is":"decode"},"encode":{"is":"encode"},"prefill":null}`; got.status != 200 || string(got.body) != want {
		t.Errorf("got %d %s, want %s", got.status, got.body, want)
	}
	fails(t, f.send(t, http.MethodPost, "/stop_profile", []byte(`{}`)), 503, "Profiling endpoints are disabled")
	fails(t, f.send(t, http.MethodPost, "/start_profile", []byte(`nonsense`)), 400, "not JSON")
	f.e[0].Close()
	fails(t, f.send(t, http.MethodPost, "/start_profile", []byte(`{}`)), 502, "the encode worker did not answer")
}
