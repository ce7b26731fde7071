// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gatewayOf serves live until the client leaves, and metrics.
func gatewayOf(t *testing.T, live http.HandlerFunc) Source {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/live", live)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# TYPE afterimage_gateway_requests_running gauge\nafterimage_gateway_requests_running 7\n")
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return Source{URL: srv.URL, HTTP: srv.Client()}
}

// tell sends one event and waits.
func tell(w http.ResponseWriter, r *http.Request, e Event) {
	body, _ := json.Marshal(e)
	fmt.Fprintf(w, ": hello\n\nevent: view\ndata: %s\n\n", body)
	w.(http.Flusher).Flush()
}

func TestOnce(t *testing.T) {
	s := gatewayOf(t, func(w http.ResponseWriter, r *http.Request) { tell(w, r, event(21)); <-r.Context().Done() })
	got, err := s.Once(t.Context())
	if err != nil || got.Requests.Ended != 21 || got.Requests.Running != 7 {
		t.Errorf("got %+v (%v)", got, err)
	}
}

func TestKeyIsSent(t *testing.T) {
	s := gatewayOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer k" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		tell(w, r, event(1))
	})
	if _, err := s.Once(t.Context()); err == nil || !strings.Contains(err.Error(), "AFTERIMAGE_API_KEY") {
		t.Errorf("without a key: got %v, want the mend", err)
	}
	s.Key = "k"
	if _, err := s.Once(t.Context()); err != nil {
		t.Errorf("with a key: %v", err)
	}
}

func TestGatewayWithoutView(t *testing.T) {
	s := gatewayOf(t, http.NotFound)
	if _, err := s.Once(t.Context()); !errors.Is(err, ErrNoView) {
		t.Errorf("got %v, want ErrNoView", err)
	}
	if err := s.Watch(t.Context(), nil, time.Hour, nil); !errors.Is(err, ErrNoView) {
		t.Errorf("Watch: got %v, want ErrNoView", err)
	}
}

func TestBrokenEvents(t *testing.T) {
	s := gatewayOf(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "data: {\n\n") })
	if _, err := s.Once(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("got %v, want that events cannot be read", err)
	}
}

// A gateway that goes away is said to, and followed again when it is back; a resize draws at once.
func TestWatch(t *testing.T) {
	var calls atomic.Int64
	s := gatewayOf(t, func(w http.ResponseWriter, r *http.Request) {
		n := calls.Add(1)
		tell(w, r, event(uint64(n)))
		if n > 1 {
			<-r.Context().Done()
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	resized := make(chan struct{}, 1)
	var states []string
	err := s.Watch(ctx, resized, time.Hour, func(got Snapshot) error {
		state := "live"
		if got.Note != "" {
			state = "lost"
		}
		states = append(states, fmt.Sprintf("%s %d", state, got.Requests.Ended))
		switch len(states) {
		case 3:
			resized <- struct{}{}
		case 4:
			cancel()
		}
		return nil
	})
	if got, want := strings.Join(states, ", "), "live 1, lost 1, live 2, live 2"; err != nil || got != want {
		t.Errorf("got %s (%v), want %s", got, err, want)
	}
}

// What cannot be shown ends the watch.
func TestWatchEndsWithItsScreen(t *testing.T) {
	s := gatewayOf(t, func(w http.ResponseWriter, r *http.Request) { tell(w, r, event(1)); <-r.Context().Done() })
	gone := errors.New("the terminal is gone")
	if err := s.Watch(t.Context(), nil, time.Hour, func(Snapshot) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("got %v, want that the terminal is gone", err)
	}
}
