// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"afterimage/internal/admit"
	"afterimage/internal/tenant"
)

// doored serves f behind a door with a key for each tenant, which is its name.
func doored(t *testing.T, f *front, sections string, tenants ...string) *front {
	t.Helper()
	text := sections
	for _, name := range tenants {
		text += fmt.Sprintf("\n[[keys]]\ntenant = %q\nadmin = %v\nhash = %q\n", name, name == "ops", tenant.HashOf(name))
	}
	set, err := tenant.Parse([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	f.Routes(mux)
	s := httptest.NewServer(admit.New(admit.Config{Keys: func() *tenant.Set { return set }}).Wrap(mux))
	t.Cleanup(s.Close)
	return &front{f.Front, s.URL}
}

// ask posts a body with the key of a tenant.
func (f *front) ask(t *testing.T, tenant, body string) answered {
	t.Helper()
	return f.send(t, http.MethodPost, "/v1/chat/completions", []byte(body), "Authorization", "Bearer "+tenant)
}

// S07: workers know media by names. Those of one tenant, its own words for them included, are no other tenant's,
// and neither are the beginnings of prompts.
func TestTenantsShareNoNames(t *testing.T) {
	for _, noRewrite := range []bool{false, true} {
		e, pd := newStub(t, encodes("")), newStub(t, says(200, completion))
		f := doored(t, newFront(t, func(c *Config) {
			c.Static = []Instance{{Role: Encode, URL: e.URL, Replicas: 1}, {Role: PrefillDecode, URL: pd.URL, Replicas: 1}}
			c.NoRewrite = noRewrite
			c.Token = "fleet"
		}), "[tenants.sharer]\nshare = true", "acme", "zeta", "sharer")
		const named = `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"},"uuid":"guessable"}]}]%s}`
		names := func(who, more string) (atE, atPD, salt string) {
			works(t, f.ask(t, who, fmt.Sprintf(named, more)))
			es, ps := e.calls(), pd.calls()
			last := ps[len(ps)-1]
			if got := last.header.Get("Authorization"); got != "Bearer fleet" {
				t.Errorf("the worker sees Authorization %q", got)
			}
			_, salt, _ = strings.Cut(last.body, `"cache_salt":"`)
			salt, _, _ = strings.Cut(salt, `"`)
			return es[len(es)-1].chat.parts(t)[0].UUID, last.chat.parts(t)[0].UUID, salt
		}
		seen := map[string]bool{}
		for _, who := range []string{"acme", "zeta"} {
			atE, atPD, salt := names(who, "")
			if atE != atPD || len(atE) != 64 || len(salt) != 64 || seen[atE] || seen[salt] {
				t.Errorf("%s, no_rewrite %v: name %q at the Encoder, %q at the P/D, salt %q", who, noRewrite, atE, atPD, salt)
			}
			seen[atE], seen[salt] = true, true
			again, _, same := names(who, "")
			if again != atE || same != salt {
				t.Errorf("%s again: %q %q", who, again, same)
			}
			own, _, narrow := names(who, `,"cache_salt":"own"`)
			if own == atE || narrow == salt || seen[narrow] {
				t.Errorf("%s with a salt of its own: %q %q", who, own, narrow)
			}
			seen[own], seen[narrow] = true, true
		}
		if atE, _, salt := names("sharer", ""); atE != "guessable" || salt != "" {
			t.Errorf("one that shares: %q, salt %q", atE, salt)
		}
		if atE, _, salt := names("sharer", `,"cache_salt":"own"`); atE != "guessable" || salt != "own" {
			t.Errorf("one that shares, with a salt of its own: %q, salt %q", atE, salt)
		}
	}
}

// Media about which an Encoder says nothing go on as they are, and under a name of their tenant all the same.
func TestUnreportedMediaAreTheTenants(t *testing.T) {
	e, pd := newStub(t, says(200, `{"id":"x"}`)), newStub(t, says(200, completion))
	f := doored(t, newFront(t, func(c *Config) {
		c.Static = []Instance{{Role: Encode, URL: e.URL, Replicas: 1}, {Role: PrefillDecode, URL: pd.URL, Replicas: 1}}
	}), "", "acme", "zeta")
	seen := map[string]bool{}
	for _, who := range []string{"acme", "zeta"} {
		for _, uuid := range []string{"", `,"uuid":"guessable"`} {
			works(t, f.ask(t, who, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}`+uuid+`}]}]}`))
			calls := pd.calls()
			p := calls[len(calls)-1].chat.parts(t)[0]
			if p.Type != "image_url" || len(p.UUID) != 64 || seen[p.UUID] {
				t.Errorf("%s%s: %s named %q", who, uuid, p.Type, p.UUID)
			}
			seen[p.UUID] = true
		}
	}
}

func TestCacheSaltIsChecked(t *testing.T) {
	pd := newStub(t, says(200, completion))
	f := newFront(t, func(c *Config) { c.Static = []Instance{{Role: PrefillDecode, URL: pd.URL, Replicas: 1}} })
	for salt, status := range map[string]int{`"x"`: 200, `null`: 200, `""`: 400, `5`: 400, `["x"]`: 400} {
		got := f.post(t, "", fmt.Appendf(nil, `{"model":"m","cache_salt":%s,"messages":[{"role":"user","content":"hi"}]}`, salt))
		if got.status != status || status == 400 && !strings.Contains(string(got.body), "'cache_salt' must be a non-empty string") {
			t.Errorf("%s: %d %s", salt, got.status, got.body)
		}
	}
}

// S09: with keys, what shows workers or touches them all takes an admin's, and registration its own as ever.
func TestKeysBeforeFront(t *testing.T) {
	f := doored(t, dynamic(t, nil), "", "acme", "ops")
	get := func(method, path, key string, status int) {
		t.Helper()
		header := []string{}
		if key != "" {
			header = []string{"Authorization", "Bearer " + key}
		}
		if got := f.send(t, method, path, []byte("{}"), header...); got.status != status {
			t.Errorf("%s %s with key %q: %d %s, want %d", method, path, key, got.status, got.body, status)
		}
	}
	for _, path := range []string{"GET /instances", "POST /start_profile", "POST /stop_profile"} {
		method, path, _ := strings.Cut(path, " ")
		get(method, path, "", 401)
		get(method, path, "acme", 403)
	}
	get("GET", "/instances", "ops", 200)
	get("POST", "/instances", "ops", 403) // the key of registration is another one
	get("GET", "/v1/models", "", 401)
	get("POST", "/v1/chat/completions", "", 401)
	works(t, f.join(t, PrefillDecode, newStub(t, says(200, completion)).URL, ""))
	works(t, f.ask(t, "acme", string(chat(text))))
}

// S09: health, for which nobody needs a key, shows no addresses where there are keys.
func TestHealthHasNoAddresses(t *testing.T) {
	for _, private := range []bool{false, true} {
		f := dynamic(t, func(c *Config) { c.Private = private })
		works(t, f.join(t, Encode, "http://10.9.8.7:1", ""))
		got := f.send(t, http.MethodGet, "/health", nil)
		if got.status != 200 || strings.Contains(string(got.body), "10.9.8.7") == private || !strings.Contains(string(got.body), `"proxy":"healthy"`) {
			t.Errorf("private %v: %d %s", private, got.status, got.body)
		}
	}
}

// S06: what ties the calls of one request together is never a client's, wherever it puts it.
func TestClientsHandlesGoNowhere(t *testing.T) {
	pd := newStub(t, says(200, completion))
	f := newFront(t, func(c *Config) { c.Static = []Instance{{Role: PrefillDecode, URL: pd.URL, Replicas: 1}} })
	body := `{"model":"m","ec_transfer_params":{"consumer_zmq":"tcp://evil:1"},"kv_transfer_params":{"remote_host":"evil","remote_port":1},"messages":[{"role":"user","content":"hi"}]}`
	works(t, f.send(t, http.MethodPost, "/v1/chat/completions", []byte(body), "X-Data-Parallel-Rank", "evil", "X-Request-Id", "r", "Authorization", "Bearer evil",
		"X-Afterimage-Scope", "evil", "Cookie", "evil", "X-Forwarded-Host", "evil", "X-Api-Key", "evil"))
	got := pd.calls()[0]
	if strings.Contains(got.body, "evil") || strings.Contains(fmt.Sprint(got.header), "evil") {
		t.Errorf("the worker got %s\n%v", got.body, got.header)
	}
}

// A client that waits no longer ends its calls, and no worker is blamed for it.
func TestDeadlineOfAClient(t *testing.T) {
	ended := make(chan struct{}, 4)
	hold := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		ended <- struct{}{}
	}))
	t.Cleanup(hold.Close)
	f := doored(t, newFront(t, func(c *Config) {
		c.Static = []Instance{{Role: Encode, URL: hold.URL, Replicas: 1}, {Role: PrefillDecode, URL: hold.URL + "/", Replicas: 1}}
	}), "", "acme")
	for _, body := range []string{string(chat(text)), string(chat(image("AAAA")))} {
		got := f.send(t, http.MethodPost, "/v1/chat/completions", []byte(body), "Authorization", "Bearer acme", admit.HeaderTimeout, "200ms")
		fails(t, got, 504, "took longer than the 200ms")
		<-ended
	}
	for _, e := range f.reg.all() {
		if e.callFails != 0 {
			t.Errorf("%s is blamed for %d failures", e.URL, e.callFails)
		}
	}
}
