// SPDX-License-Identifier: Apache-2.0

package system

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"afterimage/internal/admit"
	"afterimage/internal/client"
	"afterimage/internal/control"
	"afterimage/internal/store"
	"afterimage/internal/tenant"
)

// keyed is a door that takes the names of tenants for their keys; ops is an admin's.
func keyed(t *testing.T, sections string, tenants ...string) *admit.Config {
	t.Helper()
	for _, name := range append(tenants, "ops") {
		sections += fmt.Sprintf("\n[[keys]]\ntenant = %q\nadmin = %v\nhash = %q\n", name, name == "ops", tenant.HashOf(name))
	}
	set := must[*tenant.Set](t)(tenant.Parse([]byte(sections), nil))
	return &admit.Config{Keys: func() *tenant.Set { return set }}
}

// newKeyedFleet is newFleet behind a door.
func newKeyedFleet(t *testing.T, door *admit.Config, change func(*options)) *fleet {
	t.Helper()
	return newFleet(t, func(o *options) {
		o.door, o.admin = door, "ops"
		if change != nil {
			change(o)
		}
	})
}

// as is the header of a tenant.
func as(tenant string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + tenant}
}

// askAs asks about a picture with the key of a tenant and returns where its embedding came from.
func (f *fleet) askAs(t *testing.T, tenant string, file []byte) string {
	t.Helper()
	c := &client.Client{Base: f.gateway.URL, HTTP: f.gateway.Client(), Key: tenant}
	a, err := c.Ask(t.Context(), question(file), nil)
	if err != nil || len(a.Items) != 1 {
		t.Fatalf("%s: %+v, %v", tenant, a, err)
	}
	return string(a.Items[0].Source)
}

// S07, S08: a picture that one tenant has shown is for another one as if nobody had; for itself, and for those
// that share with each other, it is there.
func TestTenantsShareNoEmbeddings(t *testing.T) {
	door := keyed(t, "[tenants.left]\nshare = true\n[tenants.right]\nshare = true\n", "acme", "zeta", "left", "right")
	for _, p2p := range []bool{false, true} {
		f := newKeyedFleet(t, door, func(o *options) { o.p2p = p2p })
		file := picture(t, 60, 60, 3)
		for _, c := range []struct{ who, want string }{
			{"acme", "encoded"}, {"acme", "resident"}, {"zeta", "encoded"}, {"zeta", "resident"}, {"acme", "resident"},
			{"left", "encoded"}, {"right", "resident"},
		} {
			if got := f.askAs(t, c.who, file); got != c.want {
				t.Errorf("p2p %v: %s gets it %s, want %s", p2p, c.who, got, c.want)
			}
		}
		if n := f.encodes(t); n != 3 {
			t.Errorf("p2p %v: %v encodes, want 3", p2p, n)
		}
		f.published(t, 0)
		f.published(t, 1)
		owners := map[string]int{}
		for _, e := range must[[]store.Entry](t)(f.encoders[0].store.List(t.Context(), "", "", 100)) {
			owners[e.Tenant]++
		}
		if len(owners) != 3 || owners["acme"] != 1 || owners["zeta"] != 1 || owners["left"] != 1 {
			t.Errorf("p2p %v: the Store counts objects for %v", p2p, owners)
		}
	}
}

// S07: a client's own name for a picture opens nothing: not another tenant's picture, nor one's own, and both
// are told in the same words as a name that nobody has used.
func TestNamesOpenNothing(t *testing.T) {
	f := newKeyedFleet(t, keyed(t, "", "acme", "zeta"), nil)
	named := func(who, part string) answer {
		t.Helper()
		return f.send(t, http.MethodPost, "/v1/chat/completions", as(who), fmt.Appendf(nil, `{"messages":[{"role":"user","content":[%s]}]}`, part))
	}
	image := must[[]byte](t)(json.Marshal(img(picture(t, 60, 60, 4))))
	if got := named("acme", strings.TrimSuffix(string(image), "}")+`,"uuid":"x"}`); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	const alone = `{"type":"image_url","image_url":null,"uuid":"%s"}`
	unknown := named("zeta", fmt.Sprintf(alone, "nobody's"))
	for _, who := range []string{"zeta", "acme"} {
		if got := named(who, fmt.Sprintf(alone, "x")); got.status != 400 || got.body != unknown.body {
			t.Errorf("%s: %d %s, want what an unknown name gets: %s", who, got.status, got.body, unknown.body)
		}
	}
	key := f.warmKey(t, "acme", picture(t, 60, 60, 4))
	for _, part := range []string{
		fmt.Sprintf(alone, key[len(key)-64:]), // the identifier of acme's picture
		fmt.Sprintf(`{"type":"afterimage_item","index":0,"identifier":%q}`, key),
		fmt.Sprintf(`{"type":"image_embeds","image_embeds":%q}`, key),
		fmt.Sprintf(`{"type":"image_url","image_url":{"url":%q}}`, key),
	} {
		if got := named("zeta", part); got.status != 400 {
			t.Errorf("%s: %d %s", part, got.status, got.body)
		}
	}
}

// warmKey has a picture warmed for a tenant and returns its key.
func (f *fleet) warmKey(t *testing.T, tenant string, file []byte) string {
	t.Helper()
	got := f.send(t, http.MethodPost, control.PathWarm, as(tenant), must[[]byte](t)(json.Marshal(control.WarmRequest{Images: []control.WarmImage{{URL: dataURL(file)}}})))
	var w control.WarmResponse
	if err := json.Unmarshal([]byte(got.body), &w); err != nil || len(w.Items) != 1 || w.Items[0].Error != nil {
		t.Fatalf("%d %s", got.status, got.body)
	}
	return string(w.Items[0].Key)
}

// S08: how much of a prompt was there before is the same for a tenant whether another has sent it or not; a salt
// of the request's own keeps it apart within the tenant.
func TestTenantsShareNoPrompts(t *testing.T) {
	f := newKeyedFleet(t, keyed(t, "", "acme", "zeta"), nil)
	prompt := strings.Repeat("the same words ", 20)
	path, form := "/v1/chat/completions", `{"messages":[{"role":"user","content":%q}]%s}`
	reused := func(who, more string) bool {
		t.Helper()
		got := f.send(t, http.MethodPost, path, as(who), fmt.Appendf(nil, form, prompt, more))
		var a chatAnswer
		if err := json.Unmarshal([]byte(got.body), &a); err != nil || got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		return a.Usage.PromptTokensDetails.CachedTokens > 100
	}
	own := `,"cache_salt":"mine"`
	for range 2 {
		for _, c := range []struct{ who, more string }{{"acme", ""}, {"zeta", ""}, {"acme", own}, {"zeta", own}} {
			if reused(c.who, c.more) {
				t.Errorf("%s, %s%s: the first is reused", path, c.who, c.more)
			}
			eventually(t, c.who+c.more+": the second is reused", func() bool { return reused(c.who, c.more) })
		}
		for _, bad := range []string{`""`, `7`, `{}`} {
			got := f.send(t, http.MethodPost, path, as("acme"), fmt.Appendf(nil, form, "hi", `,"cache_salt":`+bad))
			if got.status != 400 || !strings.Contains(got.body, `"param":"cache_salt"`) {
				t.Errorf("%s, cache_salt %s: %d %s", path, bad, got.status, got.body)
			}
		}
		path, form = "/v1/completions", `{"prompt":%q%s}`
	}
}

// What is left of a request is for its tenant, and for an admin.
func TestTracesAreTheTenants(t *testing.T) {
	f := newKeyedFleet(t, keyed(t, "", "acme", "zeta"), nil)
	body := []byte(`{"messages":[{"role":"user","content":"hi"}]}`)
	trace := f.send(t, http.MethodPost, "/v1/chat/completions", as("acme"), body).header.Get(control.HeaderTrace)
	for who, status := range map[string]int{"acme": 200, "zeta": 404, "ops": 200} {
		if got := f.send(t, http.MethodGet, control.PathTraces+"/"+trace, as(who), nil); got.status != status {
			t.Errorf("%s: %d %s", who, got.status, got.body)
		}
	}
}

// S06: our own headers and transfer fields from a client reach no worker and change no answer.
func TestForgedHeadersAndFields(t *testing.T) {
	f := newKeyedFleet(t, keyed(t, "", "acme"), nil)
	seen := make(chan http.Header, 1)
	f.prefill.fail(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == control.PathChat {
			seen <- r.Header.Clone()
		}
		return false
	})
	const body = `{"messages":[{"role":"user","content":"hi"}]%s}`
	for _, c := range []struct{ header, value string }{
		{control.HeaderPrepare, "0123456789abcdef0123456789abcdef"}, {control.HeaderScope, "evil"}, {control.HeaderItems, `[{"index":0}]`}, {control.HeaderTrace, "evil"},
		{"X-Afterimage-Tenant", "evil"}, {"X-Forwarded-For", "evil"}, {"Cookie", "evil"}, {"Proxy-Authorization", "evil"}, {"Connection", "evil"},
	} {
		header := as("acme")
		header[c.header] = c.value
		got := f.send(t, http.MethodPost, "/v1/chat/completions", header, fmt.Appendf(nil, body, ""))
		if at := fmt.Sprint(<-seen); got.status != 200 || strings.Contains(at, "evil") || strings.Contains(at, "0123456789abcdef0123456789abcdef") || strings.Contains(at, "acme") {
			t.Errorf("%s: %d, the worker sees %s", c.header, got.status, at)
		}
		if got.header.Get(control.HeaderTrace) == "evil" {
			t.Error("a client names its trace")
		}
	}
	for _, field := range []string{
		`"ec_transfer_params":{"consumer_zmq":"tcp://evil:1"}`, `"kv_transfer_params":{"remote_host":"evil"}`, `"mm_hashes":["evil"]`, `"tenant":"evil"`,
		`"identifiers":["evil"]`, `"items":[{"key":"evil"}]`, `"uses":[0]`,
	} {
		got := f.send(t, http.MethodPost, "/v1/chat/completions", as("acme"), fmt.Appendf(nil, body, ","+field))
		<-seen
		if got.status != 200 || strings.Contains(got.body, "evil") {
			t.Errorf("%s: %d %s", field, got.status, got.body)
		}
	}
}
