// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestFetchSendsLittle(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://proxy.example:3128")
	n := newNetwork(t, FetcherConfig{UserAgent: "afterimage/1.2 (+vision model server)"}, nil, func(w http.ResponseWriter, r *http.Request) {
		for _, h := range []string{"Cookie", "Authorization", "Referer"} {
			if v := r.Header.Get(h); v != "" {
				t.Errorf("%s: %s was sent", h, v)
			}
		}
		if got := r.UserAgent(); got != "afterimage/1.2 (+vision model server)" {
			t.Errorf("User-Agent is %q", got)
		}
		if r.URL.Path == "/a" {
			http.SetCookie(w, &http.Cookie{Name: "s", Value: "1"})
			http.Redirect(w, r, "/b?token=1", http.StatusFound)
			return
		}
		body("picture")(w, r)
	})
	got, err := n.fetcher.Fetch(t.Context(), "http://ok.example/a#fragment")
	if err != nil || string(got) != "picture" {
		t.Fatalf("got %q, %v", got, err)
	}
	for _, d := range n.dials() {
		if d != publicIP+":80" {
			t.Errorf("dialled %s", d)
		}
	}
}

func TestFetchTriesAllAddresses(t *testing.T) {
	var tried []string
	f := NewFetcher(FetcherConfig{
		Resolver: &names{m: map[string][][]netip.Addr{"ok.example": {ips("::ffff:93.184.215.14", "2606:2800::1")}}},
		Dial: func(_ context.Context, _, addr string) (net.Conn, error) {
			tried = append(tried, addr)
			return nil, errors.New("connection refused by 93.184.215.14")
		},
	})
	_, err := f.Fetch(t.Context(), "https://ok.example/x")
	f.Close() // ends the dial, so that tried may be read
	wantKind(t, err, ErrFetch)
	if len(tried) != 2 || tried[0] != publicIP+":443" || tried[1] != "[2606:2800::1]:443" {
		t.Errorf("tried %v", tried)
	}
	if strings.Contains(err.Error(), "93.") {
		t.Errorf("message %q holds an address", err)
	}
	if _, err := f.Fetch(t.Context(), "https://ok.example/x"); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestFetchEndsWithItsContextAndWithClose(t *testing.T) {
	arrived := make(chan struct{}, 2)
	stall := func(_ http.ResponseWriter, r *http.Request) { arrived <- struct{}{}; <-r.Context().Done() }
	n := newNetwork(t, FetcherConfig{MaxConcurrent: 1}, nil, stall)
	cause := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	fetch := func(ctx context.Context) { _, err := n.fetcher.Fetch(ctx, "http://ok.example/"); done <- err }
	go fetch(ctx)
	<-arrived
	waiting, leave := context.WithCancel(t.Context())
	leave()
	if _, err := n.fetcher.Fetch(waiting, "http://ok.example/"); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a slot: got %v", err)
	}
	cancel(cause)
	var e *Error
	if err := <-done; !errors.Is(err, cause) || errors.As(err, &e) {
		t.Errorf("got %v, want the cause and no *Error", err)
	}
	go fetch(t.Context())
	<-arrived
	n.fetcher.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}
