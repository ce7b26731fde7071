// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"afterimage/internal/openai"
	"afterimage/internal/tenant"
)

// secrets are the keys of the tests' file.
var secrets = struct{ acme, zeta, admin string }{tenant.NewKey(), tenant.NewKey(), tenant.NewKey()}

// keys returns the set of a file with two tenants and an admin.
func keys(t testing.TB, sections string) *tenant.Set {
	t.Helper()
	text := sections
	for name, key := range map[string]string{"acme": secrets.acme, "zeta": secrets.zeta, "ops": secrets.admin} {
		text += fmt.Sprintf("\n[[keys]]\ntenant = %q\nadmin = %v\nhash = %q\n", name, name == "ops", tenant.HashOf(key))
	}
	s, err := tenant.Parse([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// chatPath is a route that takes work.
const chatPath = "/v1/chat/completions"

// door returns a handler that answers who it takes the client for.
func door(t testing.TB, cfg Config) (*Door, http.Handler) {
	d := New(cfg)
	mux := http.NewServeMux()
	who := func(w http.ResponseWriter, r *http.Request) {
		p := From(r.Context())
		if got := r.Header["Authorization"]; got != nil && cfg.Keys != nil {
			t.Errorf("the handler sees %q", got)
		}
		fmt.Fprintf(w, "%s|%x", p.Tenant(), p.Salt(""))
	}
	for _, pattern := range []string{"POST " + chatPath, "GET /v1/models", "GET /v1/fleet", "GET /health", "GET /metrics", "GET /{$}", "GET /dashboard/app.js", "/"} {
		mux.HandleFunc(pattern, who)
	}
	return d, d.Wrap(mux)
}

// call sends a request and returns the answer.
func call(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader("{}"))
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func auth(key string) string { return "Authorization: Bearer " + key }

// errorOf reads an error in OpenAI's shape.
func errorOf(t *testing.T, w *httptest.ResponseRecorder) (e struct {
	Message, Type string
	Code          any
}) {
	t.Helper()
	var body struct{ Error any }
	body.Error = &e
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || e.Message == "" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("not an error in OpenAI's shape: %s", w.Body)
	}
	return e
}

// Only a key in its header, once, opens what is not open.
func TestKeysOpenRoutes(t *testing.T) {
	set := keys(t, "")
	_, h := door(t, Config{Keys: func() *tenant.Set { return set }})
	f := func(status int, code, method, path string, headers ...string) {
		t.Helper()
		w := call(h, method, path, headers...)
		if w.Code != status {
			t.Errorf("%s %s %q: %d %s", method, path, headers, w.Code, w.Body)
		}
		if status == 200 {
			return
		}
		if e := errorOf(t, w); e.Code != code {
			t.Errorf("%s %s %q: code %v", method, path, headers, e.Code)
		}
		if got := w.Header().Get("WWW-Authenticate"); (got == "Bearer") != (status == 401) {
			t.Errorf("%s %s: WWW-Authenticate %q", method, path, got)
		}
		for _, secret := range []string{secrets.acme, secrets.zeta, secrets.admin} {
			if strings.Contains(w.Body.String(), secret) {
				t.Error("the answer repeats a key")
			}
		}
	}
	const none, low = "invalid_api_key", "insufficient_permissions"
	f(200, "", "POST", chatPath, auth(secrets.acme))
	f(200, "", "POST", chatPath, "Authorization: bearer  "+secrets.zeta)
	f(200, "", "GET", "/v1/models", auth(secrets.admin))
	f(200, "", "GET", "/v1/fleet", auth(secrets.admin))
	f(403, low, "GET", "/v1/fleet", auth(secrets.acme))
	f(200, "", "GET", "/nowhere", auth(secrets.acme))
	for _, path := range []string{"/health", "/metrics", "/", "/dashboard/app.js"} {
		f(200, "", "GET", path)
		f(200, "", "GET", path, auth("wrong"))
	}
	for _, path := range []string{chatPath, chatPath + "?api_key=" + secrets.acme, chatPath + "?key=" + secrets.acme} {
		f(401, none, "POST", path)
		f(401, none, "POST", path, auth("wrong"))
		f(401, none, "POST", path, auth(""))
		f(401, none, "POST", path, auth(secrets.acme), auth(secrets.acme))
		f(401, none, "POST", path, auth(tenant.HashOf(secrets.acme).String()))
		f(401, none, "POST", path, "Authorization: "+secrets.acme)
		f(401, none, "POST", path, "Authorization: Basic "+secrets.acme)
		f(401, none, "POST", path, "X-Api-Key: "+secrets.acme)
		f(401, none, "POST", path, "X-Afterimage-Tenant: acme")
		f(401, none, "POST", path, auth(strings.Repeat("x", 60_000)))
	}
	for _, path := range []string{"/nowhere", "/v1/models", "/v1/fleet", "//v1/fleet", "/v1/./fleet", "/health/../v1/fleet", "/dashboard/../v1/fleet", "/dashboard", "/healthz"} {
		f(401, none, "GET", path)
	}
	f(401, none, "POST", "/health") // a method that the open route does not have
}

// Tenants are who their key says, whatever else a request claims.
func TestTenantIsThatOfTheKey(t *testing.T) {
	set := keys(t, "[tenants.zeta]\nshare = true")
	_, h := door(t, Config{Keys: func() *tenant.Set { return set }})
	claims := []string{"X-Afterimage-Tenant: zeta", "X-Afterimage-Scope: 00", "Tenant: zeta", "Cookie: tenant=zeta"}
	acme := call(h, "POST", chatPath, append(claims, auth(secrets.acme))...).Body.String()
	if want := fmt.Sprintf("acme|%x", set.Find(secrets.acme).Tenant.Salt()); acme != want || len(want) < 60 {
		t.Errorf("got %s, want %s", acme, want)
	}
	if got := call(h, "POST", chatPath, auth(secrets.zeta)).Body.String(); got != "zeta|" {
		t.Errorf("one that shares: %s", got)
	}
}

func TestMetricsMayBeClosed(t *testing.T) {
	set := keys(t, "")
	_, h := door(t, Config{Keys: func() *tenant.Set { return set }, ClosedMetrics: true})
	for key, status := range map[string]int{"": 401, secrets.acme: 403, secrets.admin: 200} {
		if w := call(h, "GET", "/metrics", auth(key)); w.Code != status {
			t.Errorf("got %d, want %d", w.Code, status)
		}
	}
}

// A rate is told in the headers that OpenAI's clients read, and refused with 429 before the body is read.
func TestRateLimitIsTold(t *testing.T) {
	set := keys(t, "[tenants.acme]\nrequests_per_second = 0.001\nburst = 2\nconcurrent_requests = 9")
	reg := prometheus.NewRegistry()
	d, h := door(t, Config{Keys: func() *tenant.Set { return set }, Registry: reg})
	for _, left := range []string{"1", "0"} {
		w := call(h, "POST", chatPath, auth(secrets.acme))
		if w.Code != 200 || w.Header().Get("X-Ratelimit-Limit-Requests") != "2" || w.Header().Get("X-Ratelimit-Remaining-Requests") != left || w.Header().Get("X-Ratelimit-Reset-Requests") == "" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
	r := httptest.NewRequest("POST", chatPath, unread{t})
	r.Header.Set("Authorization", "Bearer "+secrets.acme)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if e := errorOf(t, w); w.Code != 429 || e.Code != "rate_limit_exceeded" || e.Type != openai.TypeRateLimit || !strings.Contains(e.Message, "0.001 requests per second") {
		t.Errorf("%d %+v", w.Code, e)
	}
	if got := w.Header().Get("Retry-After"); got != "1000" && got != "999" || w.Header().Get("X-Ratelimit-Remaining-Requests") != "0" {
		t.Errorf("headers %v", w.Header())
	}
	if w := call(h, "GET", "/v1/models", auth(secrets.acme)); w.Code != 200 {
		t.Errorf("a route that takes no work: %d", w.Code)
	}
	if w := call(h, "POST", chatPath, auth(secrets.zeta)); w.Code != 200 || w.Header().Get("X-Ratelimit-Limit-Requests") != "" {
		t.Errorf("another tenant: %d %v", w.Code, w.Header())
	}
	if got := testutil.ToFloat64(d.metrics.requests.WithLabelValues("acme", "rate")); got != 1 {
		t.Errorf("%v refusals counted", got)
	}
}

// unread fails the test if it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) { u.t.Error("the body was read"); return 0, io.EOF }

// A tenant's place is free when its request has ended, however that was.
func TestConcurrencyEndsWithTheRequest(t *testing.T) {
	set := keys(t, "[tenants.acme]\nconcurrent_requests = 1")
	d := New(Config{Keys: func() *tenant.Set { return set }})
	in, out := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	var panics atomic.Bool
	mux.HandleFunc("POST "+chatPath, func(http.ResponseWriter, *http.Request) {
		if panics.Load() {
			panic(http.ErrAbortHandler)
		}
		in <- struct{}{}
		<-out
	})
	h := d.Wrap(mux)
	post := func() int { return call(h, "POST", chatPath, auth(secrets.acme)).Code }
	var wg sync.WaitGroup
	wg.Go(func() { post() })
	<-in
	if got := post(); got != 429 {
		t.Errorf("the second: %d", got)
	}
	out <- struct{}{}
	wg.Wait()
	panics.Store(true)
	func() {
		defer func() { _ = recover() }()
		post()
	}()
	panics.Store(false)
	wg.Go(func() {
		if got := post(); got != 200 {
			t.Errorf("after the first, and one that panicked: %d", got)
		}
	})
	<-in
	out <- struct{}{}
	wg.Wait()
}

// Without keys, queues and a deadline a request goes through untouched; with a deadline it has one.
func TestDoorWithoutKeys(t *testing.T) {
	_, h := door(t, Config{})
	if w := call(h, "GET", "/v1/fleet"); w.Code != 200 || w.Body.String() != "|" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := call(h, "POST", chatPath, HeaderTimeout+": never"); w.Code != 400 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if leave, err := (*Pass)(nil).Enter(t.Context(), Images, 0); err != nil {
		t.Error(err)
	} else {
		leave()
	}
}

// However many tenants come, series are bounded.
func TestSeriesAreBounded(t *testing.T) {
	d := New(Config{Registry: prometheus.NewRegistry()})
	for i := range 5 * maxLabels {
		d.metrics.admitted(fmt.Sprint("t", i))
	}
	if n := testutil.CollectAndCount(d.metrics.requests); n != maxLabels+4 { // and what becomes of those without keys
		t.Errorf("%d series, want %d", n, maxLabels+4)
	}
	if got := testutil.ToFloat64(d.metrics.requests.WithLabelValues(otherLabel, outcomeAdmitted)); got != 5*maxLabels-(maxLabels-1) {
		t.Errorf("%v counted for others", got)
	}
}

// Keys may be replaced while requests are in work.
func TestReloadDropsNoRequest(t *testing.T) {
	var now atomic.Pointer[tenant.Set]
	now.Store(keys(t, ""))
	d, h := door(t, Config{Keys: now.Load})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				if w := call(h, "POST", chatPath, auth(secrets.acme)); w.Code != 200 {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			}
		})
	}
	for i := range 50 {
		now.Store(keys(t, fmt.Sprintf("[tenants.acme]\nconcurrent_requests = %d", 100+i)))
		d.Forget()
	}
	wg.Wait()
}

// The table is in order, without a row twice, and says why a row is not simply keyed.
func TestRoutesTable(t *testing.T) {
	var seen []string
	for _, r := range Routes {
		if slices.Contains(seen, r.Pattern) || (r.Why == "") != (r.Access == Keyed) || r.Work && r.Access != Keyed {
			t.Errorf("row %+v", r)
		}
		seen = append(seen, r.Pattern)
	}
}
