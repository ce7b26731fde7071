// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// warmGateway answers warm calls by what the URL of the one image holds.
type warmGateway struct {
	mu    sync.Mutex
	calls map[string]int // by URL
}

func (g *warmGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req control.WarmRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || len(req.Images) != 1 {
		http.Error(w, "one image is expected", http.StatusBadRequest)
		return
	}
	u := req.Images[0].URL
	g.mu.Lock()
	g.calls[u]++
	again := g.calls[u] > 1
	g.mu.Unlock()
	it := control.WarmItem{Key: embedding.Key("key of " + u), Source: control.SourceEncoded}
	switch {
	case strings.HasSuffix(u, "bad"):
		it = control.WarmItem{Error: &control.Error{Status: 400, Message: "no picture"}}
	case strings.HasSuffix(u, "busy") && !again:
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"error":{"message":"no Encoder is ready"}}`)
		return
	case strings.HasSuffix(u, "full") && !again:
		it = control.WarmItem{Error: &control.Error{Status: 429, Message: "too many"}}
	case strings.HasSuffix(u, "there"):
		it.Source = control.SourceStore
	}
	json.NewEncoder(w).Encode(control.WarmResponse{Items: []control.WarmItem{it}})
}

func TestStoreWarm(t *testing.T) {
	g := &warmGateway{calls: map[string]int{}}
	web := httptest.NewServer(g)
	defer web.Close()
	r := newShelfRig(t, 1<<20)
	r.put(t, "key of http://x/there", []byte("v"), store.PutOptions{})
	picture := filepath.Join(t.TempDir(), "p.png")
	list := filepath.Join(t.TempDir(), "list")
	for name, text := range map[string]string{picture: "\x89PNG\r\n\x1a\n", list: "# comment\n\nhttp://x/busy\n  http://x/full \nhttp://x/there\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr, status := r.run(t, "warm", "--url", web.URL, "--json", "-j", "3", picture, "@"+list, "http://x/bad", "missing.png")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	sum := decode[struct{ Summary warmed }](t, lines[len(lines)-1]).Summary
	want := fmt.Sprint(map[string]int{"encoded": 3, "store": 1})
	if status != exitFailure || sum.Images != 6 || sum.Failed != 2 || fmt.Sprint(sum.Sources) != want || sum.InStore == nil || *sum.InStore != 1 {
		t.Errorf("status %d, %+v\n%s", status, sum, stderr)
	}
	failed := map[string]string{}
	for _, line := range lines[:len(lines)-1] {
		if it := decode[warmJSON](t, line); it.Error != nil {
			failed[it.Image] = it.Error.Message
		}
	}
	if failed["http://x/bad"] != "no picture" || !strings.Contains(failed["missing.png"], "no such file") || len(failed) != 2 {
		t.Errorf("failures: %v", failed)
	}
	if g.calls["http://x/bad"] != 1 || g.calls["http://x/busy"] != 2 || g.calls["http://x/full"] != 2 {
		t.Errorf("calls: %v; only what is about the moment is tried again", g.calls)
	}
	if _, isData := g.calls["data:image/png;base64,iVBORw0KGgo="]; !isData {
		t.Errorf("the file was not sent as it is: %v", g.calls)
	}
}

func TestStoreWarmRefusals(t *testing.T) {
	r := newShelfRig(t, 1<<20)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("# nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(status int, words string, args ...string) {
		t.Helper()
		_, stderr, got := r.run(t, append([]string{"warm"}, args...)...)
		if got != status || !strings.Contains(stderr, words) {
			t.Errorf("warm %q: status %d, %s", args, got, stderr)
		}
	}
	f(exitUsage, "--url x", "--url", "x", "a.png")
	f(exitUsage, "--jobs 0", "--jobs", "0", "a.png")
	f(exitUsage, "--retries -1", "--retries", "-1", "a.png")
	f(exitUsage, "no such file", "@nothing")
	f(exitUsage, "is empty", "@"+empty)
	f(exitFailure, "no gateway answers at http://127.0.0.1:1", "--url", "http://127.0.0.1:1", "http://x/a.png", "http://x/b.png")
}
