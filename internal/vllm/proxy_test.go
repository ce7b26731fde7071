// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// The tests of this file assert what vLLM's tests of its proxy of the same names do (test_epd_proxy.py, and those of
// test_epd_registry_edge_cases.py that need a proxy).

const adminKey = "k1"

// dynamic returns a Front that instances register with.
func dynamic(t *testing.T, adjust func(*Config)) *front {
	return newFront(t, func(c *Config) {
		c.Dynamic, c.AdminKey, c.Routing, c.ShortNames = true, adminKey, RoundRobin, false
		if adjust != nil {
			adjust(c)
		}
	})
}

// join registers an instance over the API; more are further members of the body.
func (f *front) join(t *testing.T, role Role, url string, more string) answered {
	t.Helper()
	body := fmt.Appendf(nil, `{"role":%q,"url":%q%s}`, role, url, more)
	return f.send(t, http.MethodPost, "/instances", body, "X-API-Key", adminKey)
}

func (f *front) leave(t *testing.T, url string) answered {
	t.Helper()
	return f.send(t, http.MethodDelete, "/instances?url="+url, nil, "X-API-Key", adminKey)
}

func TestNoDecodeIs503(t *testing.T) {
	f := dynamic(t, nil)
	e := newStub(t, encodes(""))
	works(t, f.join(t, Encode, e.URL, ""))
	fails(t, f.post(t, "", chat(text)), 503, "No decode instance is registered")
	if got := f.post(t, "", chat(text)).header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After %q, want 1", got)
	}
}

func TestMediaWithoutEncoderIs503(t *testing.T) {
	f := dynamic(t, nil)
	pd := newStub(t, says(200, completion))
	works(t, f.join(t, PrefillDecode, pd.URL, ""))
	fails(t, f.post(t, "", chat(image("AAAA"))), 503, "No encode instance is registered")
	works(t, f.post(t, "", chat(text)))
}

func TestPrefillIsOptional(t *testing.T) {
	f := dynamic(t, nil)
	pd := newStub(t, says(200, completion))
	works(t, f.join(t, PrefillDecode, pd.URL, ""))
	works(t, f.post(t, "", chat(text)))
	split := dynamic(t, nil)
	d := newStub(t, says(200, completion))
	works(t, split.join(t, Decode, d.URL, ""))
	fails(t, split.post(t, "", chat(text)), 503, "No prefill instance is registered")
}

func TestOneEncoderPerItem(t *testing.T) {
	f := dynamic(t, nil)
	e1, e2 := newStub(t, encodes("")), newStub(t, encodes(""))
	pd := newStub(t, says(200, completion))
	for _, e := range []*stub{e1, e2} {
		works(t, f.join(t, Encode, e.URL, ""))
	}
	works(t, f.join(t, PrefillDecode, pd.URL, ""))
	works(t, f.post(t, "", chat(image("AAAA"), image("BBBB"))))
	if len(e1.calls()) != 1 || len(e2.calls()) != 1 {
		t.Errorf("%d and %d calls, want one each", len(e1.calls()), len(e2.calls()))
	}
}

func TestNoAddressMeansNoTarget(t *testing.T) {
	f := dynamic(t, nil)
	e, pd := newStub(t, encodes("")), newStub(t, says(200, completion))
	works(t, f.join(t, Encode, e.URL, ""))
	works(t, f.join(t, PrefillDecode, pd.URL, ""))
	works(t, f.post(t, "", chat(image("AAAA"))))
	if c := e.calls()[0].chat; c.Params.Consumer != "" || c.Params.Items != nil {
		t.Errorf("the Encoder is told of a consumer: %+v", c.Params)
	}
}

// consumers runs one request with a medium and returns what the Encoder and the consumers got.
func consumers(t *testing.T, split bool, more string) (e received, calls map[Role]received) {
	t.Helper()
	f := dynamic(t, nil)
	enc, p, d := newStub(t, encodes("")), newStub(t, says(200, `{"kv_transfer_params":{"x":1}}`)), newStub(t, says(200, completion))
	works(t, f.join(t, Encode, enc.URL, ""))
	if split {
		works(t, f.join(t, Prefill, p.URL, more))
		works(t, f.join(t, Decode, d.URL, ""))
	} else {
		works(t, f.join(t, PrefillDecode, d.URL, more))
	}
	works(t, f.post(t, "parent", chat(image("AAAA"))))
	calls = map[Role]received{Decode: d.calls()[0]}
	if split {
		calls[Prefill] = p.calls()[0]
	}
	return enc.calls()[0], calls
}

func TestDecodeIsTheConsumerWhenNotSplit(t *testing.T) {
	e, _ := consumers(t, false, `,"ec_zmq_addrs":["tcp://d:1"]`)
	if e.chat.Params.Consumer != "tcp://d:1" {
		t.Errorf("consumer %q", e.chat.Params.Consumer)
	}
}

func TestPrefillIsTheConsumerWhenSplit(t *testing.T) {
	e, calls := consumers(t, true, `,"ec_zmq_addrs":["tcp://p:1","tcp://p:2"],"dp_size":2`)
	if e.chat.Params.Consumer != "tcp://p:1" {
		t.Errorf("consumer %q", e.chat.Params.Consumer)
	}
	if p, d := calls[Prefill].header.Get("X-Data-Parallel-Rank"), calls[Decode].header.Get("X-Data-Parallel-Rank"); p != "0" || d != "" {
		t.Errorf("ranks: prefill %q, decode %q; want 0 and none", p, d)
	}
}

func TestServesBeforeRegistration(t *testing.T) {
	f := dynamic(t, nil)
	for _, path := range []string{"/health", "/instances"} {
		works(t, f.send(t, http.MethodGet, path, nil))
	}
	fails(t, f.send(t, http.MethodGet, "/v1/models", nil), 503, "No decode instance is registered")
}

func TestJoinAndLeave(t *testing.T) {
	f := dynamic(t, nil)
	a, b := newStub(t, says(200, completion)), newStub(t, says(200, completion))
	works(t, f.join(t, PrefillDecode, a.URL, ""))
	works(t, f.post(t, "", chat(text)))
	works(t, f.join(t, PrefillDecode, b.URL, ""))
	works(t, f.leave(t, a.URL))
	works(t, f.post(t, "", chat(text)))
	if len(a.calls()) != 1 || len(b.calls()) != 1 {
		t.Errorf("%d and %d calls, want one each", len(a.calls()), len(b.calls()))
	}
	works(t, f.leave(t, b.URL))
	fails(t, f.post(t, "", chat(text)), 503, "No decode instance")
}

func TestTrailingSlashIsStripped(t *testing.T) {
	f := dynamic(t, nil)
	works(t, f.join(t, Encode, "http://127.0.0.1:1/", ""))
	same(t, "live", f.reg.Status().Encode.Live, []string{"http://127.0.0.1:1"})
	if got := f.leave(t, "http://127.0.0.1:1/"); string(got.body) != `{"removed":true}` {
		t.Errorf("got %s", got.body)
	}
}

func TestUnknownRoleIs422(t *testing.T) {
	f := dynamic(t, nil)
	fails(t, f.join(t, "alien", "http://127.0.0.1:1", ""), 422, "'encode', 'prefill', 'decode' or 'prefill_decode'")
}

func TestRefusedUntilADecoderRegisters(t *testing.T) {
	f := dynamic(t, nil)
	fails(t, f.post(t, "", chat(text)), 503, "No decode instance")
	pd := newStub(t, says(200, completion))
	works(t, f.join(t, PrefillDecode, pd.URL, ""))
	works(t, f.post(t, "", chat(text)))
}

func TestMediaAreFoundAcrossMessages(t *testing.T) {
	f := dynamic(t, nil)
	e, pd := newStub(t, encodes("")), newStub(t, says(200, completion))
	works(t, f.join(t, Encode, e.URL, ""))
	works(t, f.join(t, PrefillDecode, pd.URL, ""))
	works(t, f.post(t, "", []byte(`{"model":"m","messages":[{"role":"system","content":[`+image("AAAA")+`]},{"role":"assistant","content":"x"},`+
		`{"role":"user","content":[`+text+`,`+image("BBBB")+`]}]}`)))
	if got := len(e.calls()[0].chat.parts(t)); got != 2 {
		t.Errorf("the Encoder got %d media, want 2", got)
	}
	for i, p := range pd.calls()[0].chat.parts(t) {
		if want := []string{"image_embeds", "text", "image_embeds"}[i]; p.Type != want {
			t.Errorf("part %d is %s, want %s", i, p.Type, want)
		}
	}
}

func TestLosingEveryEncoderIs503WithMedia(t *testing.T) {
	f := dynamic(t, nil)
	e, pd := newStub(t, encodes("")), newStub(t, says(200, completion))
	works(t, f.join(t, Encode, e.URL, ""))
	works(t, f.join(t, PrefillDecode, pd.URL, ""))
	e.setHealth(503)
	for range 3 {
		f.probeAll(t.Context())
	}
	fails(t, f.post(t, "", chat(image("AAAA"))), 503, "No encode instance is registered")
	works(t, f.post(t, "", chat(text)))
	e.setHealth(200)
	f.probeAll(t.Context())
	works(t, f.post(t, "", chat(image("AAAA"))))
}

func TestARaisingProbeIsAFailure(t *testing.T) {
	f := dynamic(t, nil)
	gone := newStub(t, encodes(""))
	works(t, f.join(t, Encode, gone.URL, ""))
	gone.Close()
	for range 3 {
		f.probeAll(t.Context())
	}
	same(t, "evicted", f.reg.Status().Encode.Evicted, []string{gone.URL})
}

func TestReplicaIsNamedToBothHalves(t *testing.T) {
	f := dynamic(t, nil)
	e, pd := newStub(t, encodes("")), newStub(t, says(200, completion))
	works(t, f.join(t, Encode, e.URL, ""))
	works(t, f.join(t, PrefillDecode, pd.URL, `,"dp_size":3,"ec_zmq_addrs":["tcp://d:0","tcp://d:1","tcp://d:2"]`))
	for i := range 4 {
		works(t, f.post(t, "", chat(image("AAAA"))))
		rank := fmt.Sprint(i % 3)
		if got := pd.calls()[i].header.Get("X-Data-Parallel-Rank"); got != rank {
			t.Errorf("request %d: rank %q, want %s", i, got, rank)
		}
		if got := e.calls()[i].chat.Params.Consumer; got != "tcp://d:"+rank {
			t.Errorf("request %d: pushed to %q, want replica %s", i, got, rank)
		}
	}
}

// TestModelsAreMerged: each model of several workers once; one worker's list as it is.
func TestModelsAreMerged(t *testing.T) {
	f := dynamic(t, nil)
	a, b := newStub(t, nil), newStub(t, nil)
	works(t, f.join(t, PrefillDecode, a.URL, ""))
	models := func() (ids []string) {
		var l struct {
			Object string
			Data   []struct{ ID string }
		}
		got := f.send(t, http.MethodGet, "/v1/models", nil)
		if err := json.Unmarshal(got.body, &l); err != nil || l.Object != "list" {
			t.Errorf("%s: %v", got.body, err)
		}
		for _, m := range l.Data {
			ids = append(ids, m.ID)
		}
		return ids
	}
	same(t, "one worker", models(), []string{"m", "at " + a.URL[7:]})
	works(t, f.join(t, PrefillDecode, b.URL, ""))
	same(t, "two workers", models(), []string{"m", "at " + a.URL[7:], "at " + b.URL[7:]})
	a.Close()
	same(t, "one of two", models(), []string{"m", "at " + b.URL[7:]})
}
