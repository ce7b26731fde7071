// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"afterimage/internal/embedding"
)

// origin is a web server whose answers a test sets.
type origin struct {
	*httptest.Server
	visits *Revisits

	mu     sync.Mutex // guards what follows
	answer func(w http.ResponseWriter, r *http.Request)
	asked  []string // path, and what the request asked with
	sent   int      // answers with a body
}

func newOrigin(t *testing.T, entries int, bytes int64) *origin {
	t.Helper()
	o := &origin{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.asked = append(o.asked, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("If-None-Match")+r.Header.Get("If-Modified-Since")))
		o.answer(w, r)
	}))
	f := NewFetcher(FetcherConfig{AllowPrivate: true})
	o.visits = NewRevisits(f, entries, bytes)
	t.Cleanup(func() { f.Close(); o.Close() })
	return o
}

// serve sets the file, and the header that comes with it. Who asks with its tag or date is told that it is unchanged.
func (o *origin) serve(file string, header ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		h := w.Header()
		if tag := r.Header.Get("If-None-Match"); tag != "" && tag == h.Get("Etag") || r.Header.Get("If-Modified-Since") != "" && r.Header.Get("If-Modified-Since") == h.Get("Last-Modified") {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		o.sent++
		_, _ = w.Write([]byte(file))
	}
}

// digests takes every file for a picture.
func digests(file []byte) (Known, error) {
	return Known{Digest: embedding.DigestOf(file), Info: Info{Width: len(file)}}, nil
}

func (o *origin) get(ctx context.Context, w Want) (Visit, error) {
	if !strings.HasPrefix(w.URL, "http") {
		w.URL = o.URL + w.URL
	}
	if w.MaxBytes == 0 {
		w.MaxBytes = 1 << 20
	}
	if w.Judge == nil {
		w.Judge = digests
	}
	return o.visits.Get(ctx, w)
}

// expect gets a URL and compares how, what it is known as, what was asked, and how many bodies were sent so far.
func (o *origin) expect(t *testing.T, w Want, how How, file, asked string, sent int) {
	t.Helper()
	v, err := o.get(t.Context(), w)
	if err != nil {
		t.Errorf("%s: %v", w.URL, err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	got := strings.Join(o.asked, ", ")
	o.asked = nil
	if v.How != how || v.Size != len(file) || v.Digest != embedding.DigestOf([]byte(file)) || v.Info.Width != len(file) || got != asked || o.sent != sent {
		t.Errorf("%s: got %s of %d bytes for %q with %d bodies sent, want %s of %q for %q with %d", w.URL, v.How, v.Size, got, o.sent, how, file, asked, sent)
	}
	if v.Body != nil && string(v.Body) != file {
		t.Errorf("%s: body %q, want %q", w.URL, v.Body, file)
	}
}

const longAgo = "Mon, 02 Jan 2006 15:04:05 GMT"

// A file that the server says is unchanged is known without its bytes, by a strong tag or an old date, and by nothing
// else.
func TestRevisitValidators(t *testing.T) {
	soon := time.Now().Add(-2 * time.Second).UTC().Format(http.TimeFormat)
	f := func(asks string, header ...string) {
		t.Helper()
		o := newOrigin(t, 9, 0)
		o.serve("file", header...)
		o.expect(t, Want{URL: "/a"}, Fetched, "file", "/a", 1)
		if asks == "" {
			o.expect(t, Want{URL: "/a"}, Fetched, "file", "/a", 2)
			if n, _ := o.visits.stats(); n != 0 {
				t.Errorf("%q: it is remembered", header)
			}
			return
		}
		o.expect(t, Want{URL: "/a"}, Revalidated, "file", "/a "+asks, 1)
		o.expect(t, Want{URL: "/a#fragment"}, Revalidated, "file", "/a "+asks, 1)
		o.expect(t, Want{URL: "/a", Bytes: true}, Fetched, "file", "/a", 2)
		o.expect(t, Want{URL: "/a", Again: true}, Refetched, "file", "/a", 3)
	}
	f(`"v1"`, "ETag", `"v1"`)
	f(`"v1"`, "ETag", `"v1"`, "Last-Modified", longAgo, "Vary", "Accept, Origin", "Cache-Control", "max-age=0, no-cache")
	f(longAgo, "Last-Modified", longAgo)
	f("")
	f("", "ETag", `W/"v1"`)
	f("", "ETag", `W/"v1"`, "Last-Modified", longAgo) // it says itself that bytes may differ
	f("", "ETag", `v1`)
	f("", "ETag", `"v"1"`)
	f("", "ETag", `"`+strings.Repeat("x", 300)+`"`)
	f("", "Last-Modified", soon) // another change in this second would not show
	f("", "Last-Modified", "yesterday")
	f("", "ETag", `"v1"`, "Cache-Control", "max-age=60, No-Store")
	f("", "ETag", `"v1"`, "Cache-Control", `private="x"`)
	f("", "ETag", `"v1"`, "Vary", "Accept, *")
}

// Another tag is another file, or the same: the bytes decide. A tag that has stood for two files is used no more.
func TestRevisitBytesDecide(t *testing.T) {
	o := newOrigin(t, 9, 1<<20)
	o.serve("one", "ETag", `"1"`)
	o.expect(t, Want{URL: "/a"}, Fetched, "one", "/a", 1)
	o.serve("one", "ETag", `"2"`)
	o.expect(t, Want{URL: "/a"}, Fetched, "one", `/a "1"`, 2)
	o.expect(t, Want{URL: "/a", Bytes: true}, Revalidated, "one", `/a "2"`, 2)
	o.serve("two", "ETag", `"3"`)
	o.expect(t, Want{URL: "/a"}, Fetched, "two", `/a "2"`, 3)
	o.serve("six", "ETag", `"3"`)
	o.expect(t, Want{URL: "/a", Again: true}, Refetched, "six", "/a", 4)
	o.expect(t, Want{URL: "/a"}, Fetched, "six", "/a", 5)
	o.serve("six", "ETag", `"4"`)
	o.expect(t, Want{URL: "/a"}, Fetched, "six", "/a", 6)
	o.expect(t, Want{URL: "/a"}, Fetched, "six", "/a", 7)
}

// "Unchanged" is an answer only to who asked, for what was asked about, and is not kept where that is not wanted.
func TestRevisitLies(t *testing.T) {
	o := newOrigin(t, 9, 0)
	o.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }
	_, err := o.get(t.Context(), Want{URL: "/a"})
	wantKind(t, err, ErrFetch)
	if !strings.Contains(err.Error(), "304") {
		t.Errorf("message %q", err)
	}
	o.asked = nil
	o.serve("one", "ETag", `"1"`)
	o.expect(t, Want{URL: "/a"}, Fetched, "one", "/a", 1)
	o.answer = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"2"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		o.sent++
		_, _ = w.Write([]byte("two"))
	}
	o.expect(t, Want{URL: "/a"}, Fetched, "two", `/a "1", /a`, 2)
	o.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNotModified)
	}
	o.expect(t, Want{URL: "/a"}, Revalidated, "two", `/a "2"`, 2)
	o.serve("two", "ETag", `"2"`)
	o.expect(t, Want{URL: "/a"}, Fetched, "two", "/a", 3)
	o.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
	if _, err := o.get(t.Context(), Want{URL: "/a"}); err == nil {
		t.Error("what is not there any more is taken for unchanged")
	}
}

// Each hop of a redirect is asked with what that very URL gave; where it leads to another place, that counts.
func TestRevisitRedirects(t *testing.T) {
	o := newOrigin(t, 9, 0)
	to := "/b"
	o.answer = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			w.Header().Set("ETag", `"a"`)
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		w.Header().Set("ETag", `"same"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		o.sent++
		_, _ = fmt.Fprint(w, "file at ", r.URL.Path)
	}
	o.expect(t, Want{URL: "/a"}, Fetched, "file at /b", "/a, /b", 1)
	o.expect(t, Want{URL: "/a"}, Revalidated, "file at /b", `/a, /b "same"`, 1)
	o.expect(t, Want{URL: "/b"}, Revalidated, "file at /b", `/b "same"`, 1)
	to = "/c"
	o.expect(t, Want{URL: "/a"}, Fetched, "file at /c", "/a, /c", 2)
}

// S01: what was fetched before opens no address: a name that leads to another place, and a redirect, are judged anew.
func TestRevisitIsGuarded(t *testing.T) {
	inward := false
	n := newNetwork(t, FetcherConfig{}, nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		w.Header().Set("ETag", `"1"`)
		switch {
		case inward:
			http.Redirect(w, r, "http://127.0.0.1/", http.StatusFound)
		case r.Header.Get("If-None-Match") != "":
			w.WriteHeader(http.StatusNotModified)
		default:
			body("file")(w, r)
		}
	})
	visits := NewRevisits(n.fetcher, 9, 0)
	get := func() (Visit, error) {
		return visits.Get(t.Context(), Want{URL: "http://ok.example/a", MaxBytes: 100, Judge: digests})
	}
	for _, want := range []How{Fetched, Revalidated} {
		if v, err := get(); err != nil || v.How != want {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	inward = true
	_, err := get()
	wantKind(t, err, ErrURL)
	inward = false
	names := n.fetcher.cfg.Resolver.(*names)
	names.mu.Lock()
	names.m["ok.example"] = append(names.m["ok.example"][:0], ips("10.0.0.1"))
	names.mu.Unlock()
	_, err = get()
	wantKind(t, err, ErrURL)
	for _, d := range n.dials() {
		if d != publicIP+":80" {
			t.Errorf("dialled %s", d)
		}
	}
}

// S07: what one scope has fetched, another knows nothing of.
func TestRevisitScopes(t *testing.T) {
	o := newOrigin(t, 9, 1<<20)
	o.serve("file", "ETag", `"1"`)
	o.expect(t, Want{URL: "/a", Scope: []byte("acme")}, Fetched, "file", "/a", 1)
	o.expect(t, Want{URL: "/a", Scope: []byte("zeta")}, Fetched, "file", "/a", 2)
	o.expect(t, Want{URL: "/a"}, Fetched, "file", "/a", 3)
	for _, scope := range []string{"acme", "zeta", ""} {
		o.expect(t, Want{URL: "/a", Scope: []byte(scope)}, Revalidated, "file", `/a "1"`, 3)
	}
}

// Entries and bytes are bounded; without entries nothing is remembered, and a file that is not taken, or larger than
// the request may have, is not.
func TestRevisitBounds(t *testing.T) {
	o := newOrigin(t, 2, 10)
	o.serve("four", "ETag", `"1"`)
	for i, path := range []string{"/a", "/b", "/c"} {
		o.expect(t, Want{URL: path}, Fetched, "four", path, i+1)
	}
	if n, b := o.visits.stats(); n != 2 || b != 8 {
		t.Errorf("%d entries with %d bytes, want 2 with 8", n, b)
	}
	o.expect(t, Want{URL: "/a"}, Fetched, "four", "/a", 4)
	o.serve("seven b", "ETag", `"2"`)
	o.expect(t, Want{URL: "/c"}, Fetched, "seven b", `/c "1"`, 5)
	if n, b := o.visits.stats(); n != 2 || b != 7 {
		t.Errorf("%d entries with %d bytes, want 2 with 7: the older file made way", n, b)
	}
	if _, err := o.get(t.Context(), Want{URL: "/c", MaxBytes: 3}); err == nil {
		t.Error("a file of 7 bytes for a request of 3")
	}
	bad := fmt.Errorf("no picture")
	o.expect(t, Want{URL: "/c"}, Revalidated, "seven b", `/c, /c "2"`, 6)
	if _, err := o.get(t.Context(), Want{URL: "/c", MaxBytes: 3, Again: true}); err == nil {
		t.Error("a file of 7 bytes in the place of one of 3")
	}
	o.expect(t, Want{URL: "/c"}, Fetched, "seven b", "/c, /c", 8)
	o.expect(t, Want{URL: "/c"}, Revalidated, "seven b", `/c "2"`, 8)
	o.serve("x", "ETag", `"3"`)
	if _, err := o.get(t.Context(), Want{URL: "/c", Judge: func([]byte) (Known, error) { return Known{}, bad }}); err != bad {
		t.Errorf("got %v", err)
	}
	if n, b := o.visits.stats(); n != 1 || b != 0 {
		t.Errorf("%d entries with %d bytes, want /a alone", n, b)
	}
	off := newOrigin(t, 0, 100)
	off.serve("four", "ETag", `"1"`)
	off.expect(t, Want{URL: "/a"}, Fetched, "four", "/a", 1)
	off.expect(t, Want{URL: "/a"}, Fetched, "four", "/a", 2)
}
