// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// echo serves the length and the end of what it gets, and counts connections.
func echo(t *testing.T, handler http.HandlerFunc) (url string, conns *atomic.Int64) {
	t.Helper()
	conns = &atomic.Int64{}
	if handler == nil {
		handler = func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%d %.5s %v %s", len(b), b[max(0, len(b)-5):], err, r.Header.Get("X-Name"))
		}
	}
	s := httptest.NewUnstartedServer(handler)
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, conns
}

// do makes a call and reads its answer.
func do(t *testing.T, c *http.Client, ctx context.Context, url string, body Pieces, memory *Buffer) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body.Body(memory))
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = body.Size()
	req.GetBody = func() (io.ReadCloser, error) { return body.Body(memory), nil }
	req.Header.Set("X-Name", "n")
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, b), err
}

// TestTransportSendsBodies of all sizes whole, over one connection, and lets go of their memory.
func TestTransportSendsBodies(t *testing.T) {
	url, conns := echo(t, nil)
	c := NewClient(time.Minute)
	defer c.CloseIdleConnections()
	for _, n := range []int{0, 1, inlineBytes, inlineBytes + 1, 5 << 20} {
		memory := NewBuffer(int64(n))
		body := Pieces{bytes.Repeat([]byte("x"), n), []byte("y"), nil, []byte("tail!")}
		got, err := do(t, c, t.Context(), url, body, memory)
		if want := fmt.Sprintf("200 %d tail! <nil> n", n+6); got != want || err != nil {
			t.Errorf("%d bytes: got %q, %v; want %q", n, got, err, want)
		}
		if memory.Shares() != 1 {
			t.Errorf("%d bytes: %d shares after the call, want 1", n, memory.Shares())
		}
	}
	if conns.Load() != 1 {
		t.Errorf("%d connections, want 1", conns.Load())
	}
}

// TestTransportKeepsNone: with idle below 0, and of connections that were idle for too long.
func TestTransportKeepsNone(t *testing.T) {
	url, conns := echo(t, nil)
	for i, idle := range []time.Duration{-1, time.Nanosecond} {
		c := NewClient(idle)
		for range 3 {
			if _, err := do(t, c, t.Context(), url, nil, nil); err != nil {
				t.Error(err)
			}
		}
		if got := conns.Load(); got != int64(3*(i+1)) {
			t.Errorf("idle %v: %d connections in all, want %d", idle, got, 3*(i+1))
		}
		c.CloseIdleConnections()
	}
}

// TestTransportExpires closes connections by itself, though no call follows.
func TestTransportExpires(t *testing.T) {
	url, _ := echo(t, nil)
	c := NewClient(10 * time.Millisecond)
	if _, err := do(t, c, t.Context(), url, nil, nil); err != nil {
		t.Fatal(err)
	}
	tr := c.Transport.(*transport)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		tr.mu.Lock()
		left := len(tr.links)
		tr.mu.Unlock()
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("an idle connection is kept for ever")
		}
	}
}

// TestTransportCancel: a call ends with its context at every stage, and then nobody reads its body.
func TestTransportCancel(t *testing.T) {
	for _, stage := range []string{"body", "head", "answer"} {
		t.Run(stage, func(t *testing.T) {
			entered := make(chan struct{})
			url, _ := echo(t, func(w http.ResponseWriter, r *http.Request) {
				if stage != "body" {
					io.Copy(io.Discard, r.Body)
				}
				if stage == "answer" {
					io.WriteString(w, "half")
					w.(http.Flusher).Flush()
				}
				close(entered)
				if stage == "body" {
					time.Sleep(10 * time.Millisecond) // read nothing, while the kernel's buffers fill up
					return
				}
				<-r.Context().Done()
			})
			c := NewClient(time.Minute)
			defer c.CloseIdleConnections()
			cause := errors.New("the cause")
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() { <-entered; cancel(cause) }()
			memory := NewBuffer(1)
			_, err := do(t, c, ctx, url, Pieces{make([]byte, 64<<20)}, memory)
			if stage != "body" && !errors.Is(err, cause) {
				t.Errorf("got %v, want %v", err, cause)
			}
			if memory.Shares() != 1 {
				t.Errorf("%d shares after the call, want 1", memory.Shares())
			}
		})
	}
}

// TestTransportEarlyAnswer: a worker that refuses a body without having read it is heard, not waited for.
func TestTransportEarlyAnswer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		for range 2 {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			defer conn.Close() // not before the calls have ended
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno\n")
			}
		}
	}()
	c := NewClient(time.Minute)
	defer c.CloseIdleConnections()
	for range 2 {
		memory := NewBuffer(1)
		got, err := do(t, c, t.Context(), "http://"+ln.Addr().String(), Pieces{make([]byte, 64<<20)}, memory)
		if got != "413 no\n" || err != nil || memory.Shares() != 1 {
			t.Errorf("got %q, %v, %d shares", got, err, memory.Shares())
		}
	}
}

// scripted is a worker that answers each connection with a text and closes it.
func scripted(t *testing.T, answers ...string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { ln.Close(); <-done })
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				io.Copy(io.Discard, req.Body)
				io.WriteString(conn, answers[min(i, len(answers)-1)])
			}
			conn.Close()
		}
	}()
	return "http://" + ln.Addr().String()
}

// TestTransportBadAnswers: what is no whole answer is an error, at once.
func TestTransportBadAnswers(t *testing.T) {
	f := func(answer, words string) {
		t.Helper()
		c := NewClient(time.Minute)
		defer c.CloseIdleConnections()
		memory := NewBuffer(1)
		got, err := do(t, c, t.Context(), scripted(t, answer), Pieces{[]byte("x")}, memory)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%.60q: got %q, %v; want an error with %q", answer, got, err, words)
		}
		if memory.Shares() != 1 {
			t.Errorf("%.60q: %d shares", answer, memory.Shares())
		}
	}
	f("", "closed without an answer")
	f("nonsense\r\n\r\n", "malformed")
	f("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "unexpected EOF")
	f("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "unexpected EOF")
	f("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("y", maxHead)+"\r\n\r\n", "larger than")
}

// TestTransportStale: a kept connection that the worker has closed is no failure of the call after.
func TestTransportStale(t *testing.T) {
	const whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	url := scripted(t, whole)
	c := NewClient(time.Minute)
	defer c.CloseIdleConnections()
	for i := range 50 {
		n := []int{1, inlineBytes + 1}[i%2]
		if got, err := do(t, c, t.Context(), url, Pieces{make([]byte, n)}, nil); got != "200 ok" || err != nil {
			t.Fatalf("call %d: %q, %v", i, got, err)
		}
	}
}

// TestTransportLeftover: bytes that nobody asked for do not become the answer to the next call.
func TestTransportLeftover(t *testing.T) {
	url := scripted(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
	c := NewClient(time.Minute)
	defer c.CloseIdleConnections()
	for range 5 {
		if got, err := do(t, c, t.Context(), url, nil, nil); got != "200 ok" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

// TestTransportHeaders: a value that would end its line is not sent.
func TestTransportHeaders(t *testing.T) {
	url, conns := echo(t, nil)
	c := NewClient(time.Minute)
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header["X-Name"] = []string{"a\r\nX-Other: b"}
	if resp, err := c.Do(req); err == nil {
		resp.Body.Close()
		t.Error("it was sent")
	}
	_ = conns
}

// TestTransportUnsized: a body of unknown length is refused, not sent wrong.
func TestTransportUnsized(t *testing.T) {
	url, _ := echo(t, nil)
	c := NewClient(time.Minute)
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, io.MultiReader(strings.NewReader("x")))
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = -1
	if _, err := c.Do(req); !errors.Is(err, errUnsized) {
		t.Errorf("got %v, want %v", err, errUnsized)
	}
}
