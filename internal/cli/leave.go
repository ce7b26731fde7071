// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"afterimage/internal/admin"
	"afterimage/internal/admit"
	"afterimage/internal/control"
	"afterimage/internal/openai"
	"afterimage/internal/tracing"
)

// leaver is a worker that can leave a fleet without a request noticing.
type leaver interface {
	Drain()
	Idle() bool
	HandOff(context.Context) int
}

// The steps of leaving.
const (
	// drainNotice is how long a worker goes on as if nothing were after it has announced that it drains:
	// gateways look every probeEvery, and one look may be late.
	drainNotice = 3 * probeEvery
	idlePoll    = 20 * time.Millisecond
	// handOffTimeout bounds the hand-off of outputs to the Store.
	handOffTimeout = 10 * time.Second
	// drainTimeout is how long POST /v1/drain waits for requests in work if it does not say so itself.
	drainTimeout = 10 * time.Minute
)

// departure is how one worker leaves: told by SIGTERM or by POST /v1/drain it drains first; told by any other
// end of its context it stops, and requests in work have server.drain to end.
type departure struct {
	p     *process
	w     leaver
	asked chan time.Duration // the patience that POST /v1/drain comes with
	calls atomic.Int64       // in work
	until time.Time          // what is in work is cut off then; set before serving ends
}

// serveWorker serves until the worker has left.
func (p *process) serveWorker(ctx context.Context, mux *http.ServeMux, w leaver) error {
	p.warnOpen(p.tokens)
	d := &departure{p: p, w: w, asked: make(chan time.Duration, 1)}
	mux.HandleFunc("POST "+control.PathDrain, d.serveDrain)
	serving, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	ended := make(chan struct{})
	wg.Go(func() {
		d.run(ctx, ended)
		stop(context.Cause(ctx))
	})
	err := admin.ServeUntil(serving, p.http, d.count(tracing.Handler(p.tracer, admit.Fleet(mux, p.tokens))), func() time.Duration { return time.Until(d.until) })
	close(ended)
	wg.Wait()
	return err
}

// run returns when the worker may stop serving.
func (d *departure) run(ctx context.Context, ended chan struct{}) {
	var patience time.Duration
	alone, called := context.WithoutCancel(ctx), false
	select {
	case <-ended:
		return
	case <-ctx.Done():
		d.until = time.Now().Add(d.p.drain)
		if !errors.Is(context.Cause(ctx), errTerminated) {
			return
		}
		patience = d.p.drain
	case patience = <-d.asked:
		alone, called = ctx, true // a signal makes it short
	}
	alone, cancel := context.WithTimeout(alone, patience)
	defer cancel()
	d.w.Drain()
	d.p.log.Info("draining", "for_at_most", patience)
	d.waitIdle(alone)
	off, cancelOff := context.WithTimeout(alone, handOffTimeout)
	defer cancelOff()
	d.p.log.Info("drained", "handed_to_store", d.w.HandOff(off), "calls_left", d.calls.Load())
	end, _ := alone.Deadline()
	if called && ctx.Err() != nil {
		end = time.Now().Add(d.p.drain)
	}
	d.until = end.Add(time.Second) // to write answers that are ready
}

// waitIdle waits until gateways know and nothing is in work.
func (d *departure) waitIdle(ctx context.Context) {
	notice := time.After(drainNotice)
	tick := time.NewTicker(idlePoll)
	defer tick.Stop()
	for told := false; ; {
		select {
		case <-notice:
			told = true
		case <-tick.C:
			if told && d.calls.Load() == 0 && d.w.Idle() {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// count counts the calls in work, but those that only look.
func (d *departure) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			d.calls.Add(1)
			defer d.calls.Add(-1)
		}
		next.ServeHTTP(w, r)
	})
}

// serveDrain takes the order to leave. A second one changes nothing.
func (d *departure) serveDrain(w http.ResponseWriter, r *http.Request) {
	var req control.DrainRequest
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&req)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		openai.WriteError(w, openai.BadRequest("", `the body is not of the form {"timeout_ms":60000}: %v`, err))
		return
	case req.TimeoutMS < 0:
		openai.WriteError(w, openai.BadRequest("timeout_ms", "timeout_ms must be at least 0, got %d", req.TimeoutMS))
		return
	}
	select {
	case d.asked <- cmp.Or(time.Duration(req.TimeoutMS)*time.Millisecond, drainTimeout):
	default:
	}
	w.WriteHeader(http.StatusAccepted)
}
