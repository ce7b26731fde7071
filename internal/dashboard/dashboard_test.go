// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/gateway"
	"afterimage/internal/store"
)

// The page names its files; each is there, typed, and forbids whatever is not the gateway's.
func TestPageHasItsFiles(t *testing.T) {
	mux := http.NewServeMux()
	New(Config{}).Routes(mux)
	get := func(path, tag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("If-None-Match", tag)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w
	}
	page := get("/", "").Body.String()
	paths := []string{"/"}
	for _, m := range regexp.MustCompile(`(?:src|href)="(dashboard/[^"]+)"`).FindAllStringSubmatch(page, -1) {
		paths = append(paths, "/"+m[1])
	}
	for _, m := range regexp.MustCompile(`from "\./([^"]+)"`).FindAllStringSubmatch(get("/dashboard/app.js", "").Body.String(), -1) {
		paths = append(paths, "/dashboard/"+m[1])
	}
	if len(paths) < 7 {
		t.Fatalf("found only %q", paths)
	}
	for _, path := range paths {
		w := get(path, "")
		h := w.Header()
		if w.Code != http.StatusOK || h.Get("Content-Type") == "" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'self'") {
			t.Errorf("GET %s: %d %v", path, w.Code, h)
		}
		if again := get(path, h.Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("GET %s again: %d, want 304", path, again.Code)
		}
	}
	for _, bad := range []string{"<script>", "onclick=", "style=\"", "http://", "https://"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q, which its own policy forbids", bad)
		}
	}
}

// watch serves d over a pipe and returns what a viewer reads, line by line.
func watch(t *testing.T, d *Dashboard) *bufio.Scanner {
	t.Helper()
	mux := http.NewServeMux()
	d.Routes(mux)
	here, there := net.Pipe()
	conns := make(chan net.Conn, 1)
	conns <- there
	srv := &http.Server{Handler: mux}
	ln := &oneListener{conns: conns}
	go srv.Serve(ln)
	t.Cleanup(func() { here.Close(); srv.Close() })
	go io.WriteString(here, "GET /v1/live HTTP/1.1\r\nHost: h\r\n\r\n")
	return bufio.NewScanner(here)
}

type oneListener struct {
	conns chan net.Conn
	once  sync.Once
}

func (l *oneListener) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *oneListener) Close() error   { l.once.Do(func() { close(l.conns) }); return nil }
func (l *oneListener) Addr() net.Addr { return &net.TCPAddr{} }

// next returns the next event, or comment.
func next(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return text
		}
		if strings.HasPrefix(lines.Text(), ": ") {
			return lines.Text()
		}
	}
	t.Fatalf("the stream ended: %v", lines.Err())
	return ""
}

// Events come when something changes, tell what the viewer does not know, and a comment comes when nothing does.
func TestLiveTellsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var revision atomic.Uint64
		revision.Store(3)
		d := New(Config{Version: "v", View: func(since uint64) gateway.View {
			v := gateway.View{Revision: revision.Load()}
			for n := since + 1; n <= v.Revision; n++ {
				v.Requests = append(v.Requests, gateway.SeenRequest{Number: n})
			}
			return v
		}})
		lines := watch(t, d)
		event := func() (st state) {
			t.Helper()
			if err := json.Unmarshal([]byte(next(t, lines)), &st); err != nil {
				t.Fatal(err)
			}
			return st
		}
		if st := event(); !st.First || len(st.Requests) != 3 || st.Version != "v" || st.StoreNote == "" {
			t.Errorf("the first event is %+v, want all three requests and that there is no Store", st)
		}
		if st := event(); st.First || len(st.Requests) != 0 {
			t.Errorf("the second event is %+v, want that nothing is new", st)
		}
		start := time.Now()
		if got := next(t, lines); got != ": still here" || time.Since(start) < silence {
			t.Errorf("got %q after %v, want a comment after %v", got, time.Since(start), silence)
		}
		revision.Store(4)
		if st := event(); len(st.Requests) != 1 || st.Requests[0].Number != 4 {
			t.Errorf("got %+v, want request 4", st)
		}
	})
}

// However many look, the Store is asked once a second; what it says last is what all see.
func TestStoreIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		fault := error(nil)
		x := totals{ask: func(context.Context) (store.Totals, error) {
			asked++
			return store.Totals{Objects: int64(asked)}, fault
		}}
		for range 10 {
			if got, note := x.get(t.Context()); got == nil || got.Objects != 1 || note != "" {
				t.Fatalf("got %+v, %q", got, note)
			}
		}
		fault = errors.New("dial unix /secret/path: refused")
		time.Sleep(storeEvery)
		if got, note := x.get(t.Context()); got != nil || note == "" || strings.Contains(note, "secret") {
			t.Errorf("got %+v, %q; want a word that the Store does not answer, without its address", got, note)
		}
		if asked != 2 {
			t.Errorf("asked %d times, want 2", asked)
		}
	})
}

// A browser more than there is room for is told so, and one that leaves makes room.
func TestViewersAreBounded(t *testing.T) {
	d := New(Config{View: func(uint64) gateway.View { return gateway.View{} }})
	d.viewers.Store(maxViewers)
	w := httptest.NewRecorder()
	d.serveLive(w, httptest.NewRequest(http.MethodGet, "/v1/live", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || d.viewers.Load() != maxViewers {
		t.Errorf("got %d %v with %d viewers", w.Code, w.Header(), d.viewers.Load())
	}
}
