// SPDX-License-Identifier: Apache-2.0

package system

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/admin"
	"afterimage/internal/admit"
	"afterimage/internal/dashboard"
	"afterimage/internal/encoder"
	"afterimage/internal/gateway"
	"afterimage/internal/prefill"
	"afterimage/internal/tenant"
	"afterimage/internal/vllm"
)

// patterns lists what a mux serves. net/http does not tell; it keeps its patterns in a tree.
func patterns(t *testing.T, mux *http.ServeMux) (out []string) {
	t.Helper()
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Struct:
			if v.Type().Name() == "pattern" {
				out = append(out, v.FieldByName("str").String())
				return
			}
			for i := range v.NumField() {
				if kind := v.Field(i).Kind(); kind != reflect.Func && v.Type().Field(i).Name != "handler" {
					walk(v.Field(i))
				}
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Map:
			for _, e := range v.Seq2() {
				walk(e)
			}
		}
	}
	walk(reflect.ValueOf(mux).Elem().FieldByName("tree"))
	slices.Sort(out)
	return slices.Compact(out)
}

// requestFor makes a request that a pattern takes.
func requestFor(pattern, query string) *http.Request {
	method, path, ok := strings.Cut(pattern, " ")
	if !ok {
		method, path = http.MethodGet, pattern+"nowhere"
	}
	path = strings.NewReplacer("{$}", "", "{trace}", "x", "{identifier}", "x", "{request}", "x").Replace(path)
	return httptest.NewRequest(method, path+query, strings.NewReader("{}"))
}

// S09: every route of every role asks for a key, but for those that the table of routes lists, and shows nothing
// of a key to anybody.
func TestEveryRouteAsksForAKey(t *testing.T) {
	registry := prometheus.NewRegistry
	gate := admin.Mux(admin.Role{Name: "gateway"})
	g := gateway.New(gateway.Config{Registry: registry(), Logger: quiet, MaxBodyBytes: 1 << 10})
	defer g.Close()
	g.Routes(gate)
	dashboard.New(dashboard.Config{View: g.View}).Routes(gate)
	front := admin.Mux(admin.Role{Name: "gateway"})
	v := must[*vllm.Front](t)(vllm.New(vllm.Config{Dynamic: true, AdminKey: "registration", Metrics: registry(), Logger: quiet}))
	defer v.Close()
	v.Routes(front)
	set := must[*tenant.Set](t)(tenant.Parse([]byte("[[keys]]\ntenant = \"low\"\nhash = \""+tenant.HashOf("low").String()+"\"\n"), nil))
	workers := map[string]*http.ServeMux{"encoder": admin.Mux(admin.Role{}), "prefill": admin.Mux(admin.Role{})}
	(&encoder.Encoder{}).Routes(workers["encoder"])
	(&prefill.Prefill{}).Routes(workers["prefill"])
	all := map[string]http.Handler{}
	muxes := map[string]*http.ServeMux{"gateway": gate, "vllm": front}
	for name, mux := range muxes {
		all[name] = admit.New(admit.Config{Keys: func() *tenant.Set { return set }}).Wrap(mux)
	}
	for name, mux := range workers {
		muxes[name], all[name] = mux, admit.Fleet(mux, []string{"token-of-the-fleet"})
	}
	n := 0
	for name, mux := range muxes {
		for _, pattern := range patterns(t, mux) {
			n++
			open := slices.ContainsFunc(admit.Routes, func(r admit.Route) bool {
				begin, star := strings.CutSuffix(r.Pattern, "*")
				return r.Access == admit.Open && (r.Pattern == pattern || star && strings.HasPrefix(pattern, begin))
			})
			if open {
				continue // tests of packages say that these answer
			}
			for _, query := range []string{"", "?api_key=low", "?token=token-of-the-fleet"} {
				r := requestFor(pattern, query)
				w := httptest.NewRecorder()
				all[name].ServeHTTP(w, r)
				if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), `"code":"invalid_api_key"`) {
					t.Errorf("%s %s without a key: %d %s", name, pattern, w.Code, w.Body)
				}
			}
			if i := slices.IndexFunc(admit.Routes, func(r admit.Route) bool { return r.Pattern == pattern }); i >= 0 && admit.Routes[i].Access == admit.Admin {
				r := requestFor(pattern, "")
				r.Header.Set("Authorization", "Bearer low")
				w := httptest.NewRecorder()
				if all[name].ServeHTTP(w, r); w.Code != http.StatusForbidden {
					t.Errorf("%s %s with a low key: %d %s", name, pattern, w.Code, w.Body)
				}
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d routes found", n)
	}
	for _, r := range admit.Routes {
		if !strings.HasSuffix(r.Pattern, "*") && !slices.ContainsFunc([]string{"gateway", "vllm"}, func(name string) bool { return slices.Contains(patterns(t, muxes[name]), r.Pattern) }) {
			t.Errorf("the table has %s, which no gateway serves", r.Pattern)
		}
	}
}
