// SPDX-License-Identifier: Apache-2.0

// Package admin gives every role the endpoints that operators expect, and the way in which all HTTP
// servers are run and stopped.
//
// Mux serves, without a key: /health (200 with an empty body while the process can work, else 503),
// /livez, /readyz (503 with the reason while loading or draining), /version and /metrics. A role
// mounts its own paths beside them and runs the result with Serve.
package admin

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Role describes one process to Mux. Functions may be called from any goroutine and must not block;
// a nil one stands for "yes".
type Role struct {
	Name     string // "encoder"
	Version  string
	Registry *prometheus.Registry
	// Ready says why no requests should be sent here; nil when they should.
	Ready func() error
	// Live says why the process should be restarted; nil when it should not.
	Live func() error
}

// NewRegistry returns a Registry with the collectors that every process has.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Mux returns a mux with the endpoints of r.
func Mux(r Role) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if ask(r.Live) != nil || ask(r.Ready) != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, ask(r.Live)) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, ask(r.Ready)) })
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": r.Version, "role": r.Name})
	})
	reg := r.Registry
	if reg == nil {
		reg = NewRegistry()
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	return mux
}

func ask(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

// answer writes {"status":"ok"}, or 503 with the reason.
func answer(w http.ResponseWriter, err error) {
	if err == nil {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
		return
	}
	writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "unavailable", "reason": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that has gone away is no concern of the process.
	_ = json.NewEncoder(w).Encode(body)
}
