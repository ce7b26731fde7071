// SPDX-License-Identifier: Apache-2.0

package system

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/arena"
	"afterimage/internal/control"
)

// hook sees a request before its role does; it returns true when it has answered.
type hook func(http.ResponseWriter, *http.Request) bool

// node is one role: its HTTP server, its metrics, and a switch that makes its server fail.
type node struct {
	*httptest.Server
	role   atomic.Pointer[http.ServeMux]
	reg    *prometheus.Registry
	broken atomic.Pointer[hook]
}

func newNode(mux *http.ServeMux, reg *prometheus.Registry) *node {
	n := &node{reg: reg}
	n.role.Store(mux)
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := n.broken.Load(); f != nil && (*f)(w, r) {
			return
		}
		n.role.Load().ServeHTTP(w, r)
	}))
	return n
}

// behind returns a mux of everything that h serves.
func behind(h http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/", h)
	return mux
}

// tokens is the list of those that a worker takes.
func tokens(token string) []string {
	if token == "" {
		return nil
	}
	return []string{token}
}

// fail has f see every request first; f returns true when it has answered.
func (n *node) fail(f hook) { n.broken.Store(&f) }

// heal lets all requests through again.
func (n *node) heal() { n.broken.Store(nil) }

// failOn is fail for one path.
func (n *node) failOn(path string, f http.HandlerFunc) {
	n.fail(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != path {
			return false
		}
		f(w, r)
		return true
	})
}

// hangUp is how a process that dies looks to its caller.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// die makes a node look dead: every connection breaks.
func (n *node) die() {
	n.fail(func(w http.ResponseWriter, r *http.Request) bool { hangUp(w, r); return true })
}

// answers is a handler with a fixed answer.
func answers(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// watch counts the requests to path, and lets them through.
func (n *node) watch(path string) *atomic.Int64 {
	var seen atomic.Int64
	n.fail(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == path {
			seen.Add(1)
		}
		return false
	})
	return &seen
}

// announcement asks a worker who it is, as the gateway does.
func (n *node) announcement(t *testing.T) control.Announcement {
	t.Helper()
	resp := must[*http.Response](t)(n.Client().Get(n.URL + control.PathWorker))
	defer resp.Body.Close()
	var a control.Announcement
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return a
}

// announce has a worker say something else of itself.
func (n *node) announce(t *testing.T, change func(*control.Announcement)) {
	t.Helper()
	a := n.announcement(t)
	change(&a)
	b := must[[]byte](t)(json.Marshal(a))
	n.failOn(control.PathWorker, answers(http.StatusOK, string(b)))
}

// count returns the sum of a counter over the labels that contain label ("" for all).
func (n *node) count(t *testing.T, name, label string) float64 {
	t.Helper()
	all, err := n.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			if label == "" || strings.Contains(m.String(), fmt.Sprintf("%q", label)) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return sum
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newArena(t *testing.T, name string, n int64) *arena.Arena {
	a := must[*arena.Arena](t)(arena.New(arena.Config{Name: name, Bytes: n}))
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Errorf("arena %s: %v", name, err)
		}
	})
	return a
}

// eventually waits for a condition that other goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	within(t, 20*time.Second, what, ok)
}

// within is eventually with a limit that is part of what is promised.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
