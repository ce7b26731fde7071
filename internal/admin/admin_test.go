// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMux(t *testing.T) {
	var ready, live error
	reg := NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "afterimage_test_things_total", Help: "Things."})
	reg.MustRegister(c)
	mux := Mux(Role{Name: "store", Version: "v1", Registry: reg,
		Ready: func() error { return ready }, Live: func() error { return live }})
	f := func(path string, status int, body string) {
		t.Helper()
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		got := strings.TrimSpace(rec.Body.String())
		if rec.Code != status || got != body {
			t.Errorf("GET %s: got %d %q, want %d %q", path, rec.Code, got, status, body)
		}
	}
	f("/health", 200, "")
	f("/livez", 200, `{"status":"ok"}`)
	f("/readyz", 200, `{"status":"ok"}`)
	f("/version", 200, `{"role":"store","version":"v1"}`)
	ready = errors.New("reading weights")
	f("/health", 503, "")
	f("/livez", 200, `{"status":"ok"}`)
	f("/readyz", 503, `{"reason":"reading weights","status":"unavailable"}`)
	ready, live = nil, errors.New("engine is dead")
	f("/health", 503, "")
	f("/livez", 503, `{"reason":"engine is dead","status":"unavailable"}`)

	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{"afterimage_test_things_total 0", "go_goroutines", "process_resident_memory_bytes"} {
		if !strings.Contains(rec.Body.String(), want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

func TestMuxOfZeroRole(t *testing.T) {
	mux := Mux(Role{})
	for _, path := range []string{"/health", "/livez", "/readyz", "/version", "/metrics"} {
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		if rec.Code != 200 {
			t.Errorf("GET %s: got %d, want 200", path, rec.Code)
		}
	}
}

// serve runs handler until the returned function is called, which returns what Serve did.
func serve(t *testing.T, handler http.Handler, drain time.Duration) (url string, stop func() error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, ln, handler, drain) }()
	return "http://" + ln.Addr().String(), func() error { cancel(); return <-done }
}

// get asks on a connection of its own.
func get(url string) (*http.Response, error) {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return c.Get(url)
}

func TestServeFinishesRequestsInWork(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	url, stop := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		if err := r.Context().Err(); err != nil {
			t.Errorf("the request's context has ended: %v", err)
		}
		_, _ = io.WriteString(w, "whole")
	}), time.Minute)
	body := make(chan string, 1)
	go func() {
		res, err := get(url)
		if err != nil {
			body <- err.Error()
			return
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		body <- string(b)
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	// Nobody is let in any more, while the first is still inside.
	for {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			break
		}
		c.Close()
	}
	close(release)
	if got := <-body; got != "whole" {
		t.Errorf("got %q, want the whole answer", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestServeCutsOffAfterDrain(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	url, stop := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	}), time.Millisecond)
	go func() {
		if res, err := get(url); err == nil {
			res.Body.Close()
		}
	}()
	<-entered
	if err := stop(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("got %v, want that requests were cut off", err)
	}
	<-left
}

// A connection that a client opened in advance is no request in work.
func TestServeDoesNotWaitForUnusedConnections(t *testing.T) {
	url, stop := serve(t, http.NotFoundHandler(), time.Second)
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	res, err := get(url) // accepted after c, so that c is accepted too
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestServeTellsOfABrokenListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if err := Serve(t.Context(), ln, http.NotFoundHandler(), 0); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want that the listener is closed", err)
	}
}

// A stream may last longer than the timeout of a write as long as each write gets through.
func TestRollingDeadlineLetsStreamsLive(t *testing.T) {
	const timeout, ticks = 150 * time.Millisecond, 6
	srv := httptest.NewServer(Rolling(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		for range ticks {
			if _, err := io.WriteString(w, "tick\n"); err != nil {
				t.Errorf("write: %v", err)
			}
			if err := rc.Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
			<-time.After(timeout / 3)
		}
	}), timeout))
	defer srv.Close()
	res, err := get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	n := 0
	for sc := bufio.NewScanner(res.Body); sc.Scan(); n++ {
	}
	if n != ticks {
		t.Errorf("got %d lines, want %d", n, ticks)
	}
}

// A client that reads nothing is cut off, whatever the answer's length.
func TestRollingDeadlineCutsAStalledReader(t *testing.T) {
	cut := make(chan error, 1)
	srv := httptest.NewServer(Rolling(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		block := make([]byte, 1<<20)
		for {
			if _, err := w.Write(block); err != nil {
				cut <- err
				return
			}
		}
	}), 50*time.Millisecond))
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-cut:
	case <-time.After(20 * time.Second):
		t.Fatal("a client that reads nothing is still served")
	}
}
