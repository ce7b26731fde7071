// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"afterimage/internal/admin"
)

// leavingGateway is a gateway that is about to leave.
type leavingGateway struct {
	*exit
	url   string
	begun chan struct{} // a request to /slow is in work
	let   chan struct{} // lets it end
	ended chan error
}

// startLeaving serves a gateway that ends with ctx.
func startLeaving(t *testing.T, ctx context.Context, notice time.Duration) *leavingGateway {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &leavingGateway{
		exit: &exit{p: &process{http: ln, drain: 10 * time.Second, log: slog.New(slog.DiscardHandler)}, notice: notice},
		url:  "http://" + ln.Addr().String(), begun: make(chan struct{}, 1), let: make(chan struct{}), ended: make(chan error, 1),
	}
	mux := admin.Mux(admin.Role{Ready: g.unless(func() error { return nil })})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		g.begun <- struct{}{}
		<-g.let
		_, _ = io.WriteString(w, "whole")
	})
	go func() { g.ended <- g.serve(ctx, mux) }()
	return g
}

// get asks on a connection that may be kept, and returns status and whether the answer ends the connection.
func (g *leavingGateway) get(t *testing.T, client *http.Client, path string) (status int, closes bool) {
	t.Helper()
	resp, err := client.Get(g.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Close
}

// TestGatewayLeaves: after SIGTERM it says that it is not ready, answers on connections that it ends, and finishes
// what it has; told otherwise, it takes nothing more at once.
func TestGatewayLeaves(t *testing.T) {
	client := &http.Client{}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithCancelCause(t.Context())
	g := startLeaving(t, ctx, 1500*time.Millisecond)
	if status, closes := g.get(t, client, "/readyz"); status != 200 || closes {
		t.Errorf("before: %d, closes %v", status, closes)
	}
	slow := make(chan int, 1)
	go func() {
		status, _ := g.get(t, client, "/slow")
		slow <- status
	}()
	<-g.begun
	cancel(errTerminated)
	for deadline := time.Now().Add(10 * time.Second); !g.leaving.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not leave")
		}
	}
	for path, want := range map[string]int{"/readyz": 503, "/health": 503, "/livez": 200} {
		if status, closes := g.get(t, client, path); status != want || !closes {
			t.Errorf("%s: %d, closes %v; want %d on a connection that ends", path, status, closes, want)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		conn, err := net.Dial("tcp", g.url[7:])
		if err != nil {
			break // its notice has passed
		}
		conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("it takes connections after its notice")
		}
	}
	select {
	case err := <-g.ended:
		t.Fatalf("it left with a request in work: %v", err)
	default:
	}
	close(g.let)
	if status := <-slow; status != 200 {
		t.Errorf("the request in work: %d", status)
	}
	if err := <-g.ended; err != nil {
		t.Error(err)
	}

	ctx, cancel = context.WithCancelCause(t.Context())
	g = startLeaving(t, ctx, time.Hour)
	cancel(errInterrupted)
	if err := <-g.ended; err != nil || g.leaving.Load() {
		t.Errorf("told to stop: %v, leaving %v", err, g.leaving.Load())
	}
}
