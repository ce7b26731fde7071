// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// stalled sends a request whose body stops after the first byte of n and returns the answer's status.
func stalled(t *testing.T, s *httptest.Server, n string) int {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: "+n+"\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestRollingEndsStalledBodies: a client that stops in its body gets its answer, whether the handler reads
// the body or not, and holds nothing for ever.
func TestRollingEndsStalledBodies(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"read": func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v, want that the deadline has passed", err)
			}
			w.WriteHeader(http.StatusTeapot)
		},
		"unread": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) },
	} {
		s := httptest.NewServer(Rolling(h, 50*time.Millisecond))
		if got := stalled(t, s, "1000"); got != http.StatusTeapot {
			t.Errorf("%s: got %d", name, got)
		}
		s.Close()
	}
}

// TestRollingForgetsAWholeBody: the deadline of a body does not end the work on it.
func TestRollingForgetsAWholeBody(t *testing.T) {
	const timeout = 30 * time.Millisecond
	s := httptest.NewServer(Rolling(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
			t.Error("the request ended with the deadline of its body")
		case <-time.After(5 * timeout):
		}
	}), timeout))
	defer s.Close()
	if got := stalled(t, s, "1"); got != http.StatusOK {
		t.Errorf("got %d", got)
	}
}

// TestRollingAnswersAtOnce: a client that announces more than the server passes over, and waits for a word before it sends
// that, has its answer.
func TestRollingAnswersAtOnce(t *testing.T) {
	s := httptest.NewServer(Rolling(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}), time.Hour))
	defer s.Close()
	if got := stalled(t, s, "67108865"); got != http.StatusRequestEntityTooLarge {
		t.Errorf("got %d", got)
	}
}
