// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A worker with a token takes calls that show it, from gateways whose clients add it, and no others.
func TestFleetToken(t *testing.T) {
	mux := http.NewServeMux()
	served := 0
	for _, pattern := range []string{"POST /v1/encode", "GET /v1/worker", "GET /health", "GET /metrics"} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			served++
			_, _ = io.Copy(w, r.Body)
		})
	}
	s := httptest.NewServer(Fleet(mux, []string{"first", "second"}))
	defer s.Close()
	f := func(token, method, path string, status int) {
		t.Helper()
		c := WithToken(s.Client(), token)
		r, err := http.NewRequest(method, s.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		before := served
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status || (served > before) != (status == 200) {
			t.Errorf("%s %s with %q: %s, served %v", method, path, token, resp.Status, served > before)
		}
		if r.Header.Get("Authorization") != "" {
			t.Error("the request was changed")
		}
		c.CloseIdleConnections()
	}
	f("first", "POST", "/v1/encode", 200)
	f("second", "GET", "/v1/worker", 200)
	f("third", "POST", "/v1/encode", 401)
	f("", "POST", "/v1/encode", 401)
	f("", "GET", "/v1/worker", 401)
	f("first ", "GET", "/v1/worker", 200) // space at the end of a header line is none of its value
	f("", "GET", "/health", 200)
	f("", "GET", "/metrics", 200)
	f("", "GET", "/v1/drain", 401)
}

// Without a token everybody may call, as on a network of one's own.
func TestFleetWithoutToken(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/encode", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Context().Deadline(); ok != (r.Header[HeaderTimeout] != nil) {
			t.Errorf("a deadline: %v", ok)
		}
	})
	h := Fleet(mux, nil)
	for timeout, status := range map[string]int{"": 200, "5s": 200, "x": 400} {
		r := httptest.NewRequest("POST", "/v1/encode", nil)
		if timeout != "" {
			r.Header.Set(HeaderTimeout, timeout)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != status {
			t.Errorf("timeout %q: %d", timeout, w.Code)
		}
	}
}
