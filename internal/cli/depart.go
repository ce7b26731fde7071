// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"afterimage/internal/admin"
)

// errLeaving is why a gateway that was told to leave is not ready.
var errLeaving = errors.New("draining")

// exit is how a gateway leaves. Told by SIGTERM it says that it is not ready, and goes on for the time that those
// who choose between gateways take to see it; its answers ask clients to connect anew, elsewhere. Then, and at
// once when it is told otherwise, it takes nothing more and finishes what it has.
type exit struct {
	p       *process
	notice  time.Duration
	leaving atomic.Bool
}

// unless is ready until the gateway is told to leave.
func (e *exit) unless(ready func() error) func() error {
	return func() error {
		if e.leaving.Load() {
			return errLeaving
		}
		return ready()
	}
}

// serve answers requests until the gateway has left.
func (e *exit) serve(ctx context.Context, h http.Handler) error {
	serving, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-ctx.Done():
			e.await(ctx, ended)
			stop(context.Cause(ctx))
		case <-ended:
		}
	})
	err := admin.Serve(serving, e.p.http, e.closing(h), e.p.drain)
	close(ended)
	wg.Wait()
	return err
}

// await lets the notice pass, if it was SIGTERM.
func (e *exit) await(ctx context.Context, ended <-chan struct{}) {
	if !errors.Is(context.Cause(ctx), errTerminated) {
		return
	}
	e.leaving.Store(true)
	e.p.log.Info("draining", "notice", e.notice)
	select {
	case <-time.After(e.notice):
	case <-ended:
	}
}

// closing has answers end their connections once the gateway leaves.
func (e *exit) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e.leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
