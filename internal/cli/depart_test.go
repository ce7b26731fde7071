// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/admin"
	"afterimage/internal/testkit/faultconn"
)

// leavingGateway is a gateway that is about to leave.
type leavingGateway struct {
	*exit
	pipe   *faultconn.Pipe
	client *http.Client  // keeps its connections
	begun  chan struct{} // a request to /slow is in work
	let    chan struct{} // lets it end
	ended  chan error
}

// startLeaving serves a gateway that ends with ctx.
func startLeaving(t *testing.T, ctx context.Context, notice time.Duration) *leavingGateway {
	t.Helper()
	pipe := faultconn.NewPipe()
	g := &leavingGateway{
		exit: &exit{p: &process{http: pipe, drain: 10 * time.Second, log: slog.New(slog.DiscardHandler)}, notice: notice},
		pipe: pipe, client: &http.Client{Transport: &http.Transport{DialContext: pipe.Dial}},
		begun: make(chan struct{}, 1), let: make(chan struct{}), ended: make(chan error, 1),
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
func (g *leavingGateway) get(t *testing.T, path string) (status int, closes bool) {
	t.Helper()
	resp, err := g.client.Get("http://gateway" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Close
}

// TestGatewayLeaves: after SIGTERM it says that it is not ready, answers on connections that it ends, and finishes
// what it has, and takes no more once its notice has passed.
func TestGatewayLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const notice = 30 * time.Second
		ctx, cancel := context.WithCancelCause(t.Context())
		g := startLeaving(t, ctx, notice)
		if status, closes := g.get(t, "/readyz"); status != 200 || closes {
			t.Errorf("before: %d, closes %v", status, closes)
		}
		slow := make(chan int, 1)
		go func() {
			status, _ := g.get(t, "/slow")
			slow <- status
		}()
		<-g.begun
		cancel(errTerminated)
		synctest.Wait()
		time.Sleep(notice - time.Nanosecond)
		for path, want := range map[string]int{"/readyz": 503, "/health": 503, "/livez": 200} {
			if status, closes := g.get(t, path); status != want || !closes {
				t.Errorf("%s: %d, closes %v; want %d on a connection that ends", path, status, closes, want)
			}
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if _, err := g.pipe.Dial(t.Context(), "", ""); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a connection after its notice: %v", err)
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
	})
}

// TestGatewayStops: told to stop otherwise, it takes nothing more at once.
func TestGatewayStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		g := startLeaving(t, ctx, time.Hour)
		start := time.Now()
		cancel(errInterrupted)
		if err := <-g.ended; err != nil || g.leaving.Load() || time.Since(start) > time.Second {
			t.Errorf("told to stop: %v, leaving %v, after %v", err, g.leaving.Load(), time.Since(start))
		}
	})
}
