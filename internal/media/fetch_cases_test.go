// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestS01DeniedWithoutAConnection(t *testing.T) {
	hosts := map[string][][]netip.Addr{
		"private.example":  {ips("10.1.2.3")},
		"mixed.example":    {ips(publicIP, "192.168.0.1")},
		"metadata.example": {ips("169.254.169.254")},
		"mapped.example":   {ips("::ffff:127.0.0.1")},
		"localhost":        {ips("127.0.0.1", "::1")},
	}
	n := newNetwork(t, FetcherConfig{}, hosts, body("secret"))
	var denied string
	f := func(url string) {
		t.Helper()
		_, err := n.fetcher.Fetch(t.Context(), url)
		wantKind(t, err, ErrURL)
		if denied == "" {
			denied = err.Error()
		}
		if err.Error() != denied {
			t.Errorf("%s: message %q tells it apart from %q", url, err, denied)
		}
	}
	for _, host := range []string{
		"127.0.0.1", "127.9.9.9", "[::1]", "[::]", "0.0.0.0", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
		"169.254.169.254", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.100.100.200",
		"168.63.129.16", "192.0.0.192", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1",
		"255.255.255.255", "[fc00::1]", "[fd00:ec2::254]", "[fe80::1]", "[fe80::1%25eth0]", "[ff02::1]", "[2001:db8::1]",
		"[64:ff9b::7f00:1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2001:0:4136:e378::1]",
		"2130706433", "0x7f000001", "0x7F.1", "0177.0.0.1", "127.1", "127.0.0.1.", "127.0.0.0x1", "１２７.0.0.1", "127。0。0。1",
		"private.example", "mixed.example", "metadata.example", "mapped.example", "localhost",
	} {
		f("http://" + host + "/")
		f("https://" + host + ":443/x.png")
		f("http://" + host + ":80/latest/meta-data")
	}
	if d := n.dials(); len(d) != 0 {
		t.Errorf("dialled %v", d)
	}
}

func TestS01RefusedURLs(t *testing.T) {
	n := newNetwork(t, FetcherConfig{}, nil, body("secret"))
	f := func(url, msg string) {
		t.Helper()
		_, err := n.fetcher.Fetch(t.Context(), url)
		wantKind(t, err, ErrURL)
		if !strings.Contains(err.Error(), msg) {
			t.Errorf("%.60s: message %q, want it to say %q", url, err, msg)
		}
	}
	const schemes = "The URL must be either a HTTP, data or file URL."
	f("file:///etc/passwd", "local files")
	f("FILE:///etc/passwd", "local files")
	f("gopher://ok.example/", schemes)
	f("ftp://ok.example/", schemes)
	f("ok.example/x.png", schemes)
	f("//ok.example/x.png", schemes)
	f("", schemes)
	f("data:image/png;base64,AAAA", schemes)
	f("http:///x", "no host")
	f("http:ok.example", "no host")
	f("http://user:word@ok.example/", "user name")
	f("http://ok.example@127.0.0.1/", "user name")
	f("http://ok.example:8080/", "port 8080")
	f("http://ok.example:22/", "port 22")
	f("http://ok.example\\@127.0.0.1/", "malformed")
	f("http://ok.example/\r\nX: y", "malformed")
	f("http://ok.example/"+strings.Repeat("x", 9000), "8192")
	if d := n.dials(); len(d) != 0 {
		t.Errorf("dialled %v", d)
	}
}

func TestS01Redirects(t *testing.T) {
	n := newNetwork(t, FetcherConfig{MaxRedirects: 10}, map[string][][]netip.Addr{"inner.example": {ips("10.0.0.1")}},
		func(w http.ResponseWriter, r *http.Request) {
			if to := r.URL.Query().Get("to"); to != "" {
				w.Header().Set("Location", to)
				w.WriteHeader(http.StatusFound)
				return
			}
			var left int
			if _, err := fmt.Sscanf(r.URL.Path, "/chain/%d", &left); err == nil && left > 0 {
				http.Redirect(w, r, fmt.Sprintf("/chain/%d", left-1), http.StatusTemporaryRedirect)
				return
			}
			switch r.URL.Path {
			case "/loop":
				http.Redirect(w, r, "/loop", http.StatusMovedPermanently)
				return
			case "/nowhere":
				w.WriteHeader(http.StatusFound)
				return
			}
			body("end")(w, r)
		})
	f := func(path string, kind Kind, msg string) {
		t.Helper()
		_, err := n.fetcher.Fetch(t.Context(), "http://ok.example"+path)
		wantKind(t, err, kind)
		if !strings.Contains(err.Error(), msg) {
			t.Errorf("%s: message %q, want it to say %q", path, err, msg)
		}
	}
	f("/?to=http://127.0.0.1/", ErrURL, "not allowed")
	f("/?to=http://inner.example/", ErrURL, "not allowed")
	f("/?to=//169.254.169.254/latest", ErrURL, "not allowed")
	f("/?to=http://ok.example:8080/", ErrURL, "port 8080")
	f("/?to=http://u@ok.example/", ErrURL, "user name")
	f("/?to=file:///etc/passwd", ErrURL, "local files")
	f("/?to=gopher://ok.example/", ErrURL, "must be either")
	f("/loop", ErrFetch, "more than 10 redirects")
	f("/chain/11", ErrFetch, "more than 10 redirects")
	f("/nowhere", ErrFetch, "302")
	if got, err := n.fetcher.Fetch(t.Context(), "http://ok.example/chain/10"); err != nil || string(got) != "end" {
		t.Errorf("ten hops: %q, %v", got, err)
	}
	for _, d := range n.dials() {
		if d != publicIP+":80" {
			t.Errorf("dialled %s", d)
		}
	}
}

// The address that was judged is the one that is dialled: the name is not asked again in between.
func TestS01RebindingName(t *testing.T) {
	hosts := map[string][][]netip.Addr{"rebind.example": {ips(publicIP), ips("127.0.0.1")}}
	n := newNetwork(t, FetcherConfig{}, hosts, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		body("public")(w, r)
	})
	if got, err := n.fetcher.Fetch(t.Context(), "http://rebind.example/"); err != nil || string(got) != "public" {
		t.Fatalf("got %q, %v", got, err)
	}
	_, err := n.fetcher.Fetch(t.Context(), "http://rebind.example/")
	wantKind(t, err, ErrURL)
	if d := n.dials(); len(d) != 1 || d[0] != publicIP+":80" {
		t.Errorf("dialled %v", d)
	}
}

func TestS01AllowPrivate(t *testing.T) {
	n := newNetwork(t, FetcherConfig{AllowPrivate: true}, nil, body("mine"))
	if got, err := n.fetcher.Fetch(t.Context(), "http://127.0.0.1:8080/x"); err != nil || string(got) != "mine" {
		t.Fatalf("got %q, %v", got, err)
	}
	_, err := n.fetcher.Fetch(t.Context(), "file:///etc/passwd")
	wantKind(t, err, ErrURL)
	p := newNetwork(t, FetcherConfig{AllowPorts: []string{"8080"}}, nil, body("port"))
	if got, err := p.fetcher.Fetch(t.Context(), "http://ok.example:8080/x"); err != nil || string(got) != "port" {
		t.Fatalf("got %q, %v", got, err)
	}
	_, err = p.fetcher.Fetch(t.Context(), "http://127.0.0.1:8080/x")
	wantKind(t, err, ErrURL)
}

func TestI10UpstreamFailures(t *testing.T) {
	n := newNetwork(t, FetcherConfig{}, nil, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/agent":
			if ua := r.UserAgent(); !strings.HasPrefix(ua, "afterimage") {
				http.Error(w, "who are you", http.StatusForbidden)
			}
			body("picture")(w, r)
		case "/html":
			w.Header().Set("Content-Type", "image/png")
			body("<html>sign in first</html>")(w, r)
		case "/br":
			w.Header().Set("Content-Encoding", "br")
			body("xxxx")(w, r)
		case "/empty":
		case "/404":
			http.Error(w, "secret words of the other server", http.StatusNotFound)
		case "/429":
			w.WriteHeader(http.StatusTooManyRequests)
		case "/503":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		}
	})
	f := func(url string, kind Kind, msg string) {
		t.Helper()
		_, err := n.fetcher.Fetch(t.Context(), url)
		wantKind(t, err, kind)
		if !strings.Contains(err.Error(), msg) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: message %q, want it to say %q", url, err, msg)
		}
	}
	f("http://ok.example/404", ErrFetch, "404 Not Found")
	f("http://ok.example/429", ErrFetch, "429")
	f("http://ok.example/503", ErrFetch, "503")
	f("http://ok.example/204", ErrFetch, "204")
	f("http://ok.example/br", ErrFetch, "encoding")
	f("http://ok.example/empty", ErrEmpty, "empty")
	f("http://nowhere.example/", ErrFetch, "does not resolve")
	f("https://ok.example/", ErrFetch, "TLS")
	if _, err := n.fetcher.Fetch(t.Context(), "http://ok.example/agent"); err != nil {
		t.Errorf("the default User-Agent is refused: %v", err)
	}
	page, err := n.fetcher.Fetch(t.Context(), "http://ok.example/html")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Inspect(page, Limits{})
	wantKind(t, err, ErrUnsupported)
}

func TestI10UntrustedCertificate(t *testing.T) {
	srv := httptest.NewUnstartedServer(body("picture"))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	f := NewFetcher(FetcherConfig{
		Resolver: &names{m: map[string][][]netip.Addr{"ok.example": {ips(publicIP)}}},
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, srv.Listener.Addr().String())
		},
	})
	defer f.Close()
	_, err := f.Fetch(t.Context(), "https://ok.example/")
	wantKind(t, err, ErrFetch)
	if !strings.Contains(err.Error(), "certificate") {
		t.Errorf("message %q", err)
	}
}

func TestI10StalledBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, FetcherConfig{Timeout: 7 * time.Second}, nil, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "some")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		start := time.Now()
		_, err := n.fetcher.Fetch(t.Context(), "http://ok.example/")
		wantKind(t, err, ErrFetch)
		if took := time.Since(start); took != 7*time.Second || !strings.Contains(err.Error(), "7s") {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestS03OneBytePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, FetcherConfig{}, nil, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "x")
				w.(http.Flusher).Flush()
				select {
				case <-time.After(time.Second):
				case <-r.Context().Done():
				}
			}
		})
		start := time.Now()
		_, err := n.fetcher.Fetch(t.Context(), "http://ok.example/")
		wantKind(t, err, ErrFetch)
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("ended after %v", took)
		}
	})
}

func TestS03Bodies(t *testing.T) {
	const limit = 1 << 20
	chunk := make([]byte, 64<<10)
	var sent atomic.Int64
	endless := func(w io.Writer) {
		for {
			n, err := w.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 8 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	n := newNetwork(t, FetcherConfig{MaxBytes: limit}, nil, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/endless":
			endless(w)
		case "/huge":
			w.Header().Set("Content-Length", "10000000000")
			endless(w)
		case "/cut":
			w.Header().Set("Content-Length", "5000")
			_, _ = w.Write(chunk[:100])
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		case "/limit":
			_, _ = w.Write(make([]byte, limit))
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(chunk)
			_ = z.Close()
		}
	})
	f := func(path string, kind Kind) {
		t.Helper()
		_, err := n.fetcher.Fetch(t.Context(), "http://ok.example"+path)
		wantKind(t, err, kind)
	}
	f("/endless", ErrTooLarge)
	f("/huge", ErrTooLarge)
	f("/bomb", ErrTooLarge)
	f("/cut", ErrFetch)
	if s := sent.Load(); s > 4*limit {
		t.Errorf("%d bytes were taken from endless bodies", s)
	}
	if got, err := n.fetcher.Fetch(t.Context(), "http://ok.example/limit"); err != nil || len(got) != limit {
		t.Errorf("a body of the limit: %d bytes, %v", len(got), err)
	}
	if got, err := n.fetcher.Fetch(t.Context(), "http://ok.example/gzip"); err != nil || !bytes.Equal(got, chunk) {
		t.Errorf("a gzip body: %d bytes, %v", len(got), err)
	}
	_, err := n.fetcher.FetchMax(t.Context(), "http://ok.example/limit", limit-1)
	wantKind(t, err, ErrTooLarge)
}

// Twenty images at once never hold more than MaxConcurrent bodies.
func TestS03FetchesAtOnce(t *testing.T) {
	var now, most atomic.Int64
	n := newNetwork(t, FetcherConfig{MaxConcurrent: 3}, nil, func(w http.ResponseWriter, r *http.Request) {
		k := now.Add(1)
		for m := most.Load(); k > m && !most.CompareAndSwap(m, k); m = most.Load() {
		}
		body("picture")(w, r)
		now.Add(-1)
	})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := n.fetcher.Fetch(t.Context(), "http://ok.example/"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if m := most.Load(); m > 3 {
		t.Errorf("%d fetches ran at once", m)
	}
}
