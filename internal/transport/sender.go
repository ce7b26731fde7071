// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"afterimage/internal/arena"
	"afterimage/internal/control"
)

// sender implements Sender: one connection per address, opened by the first Send and kept.
type sender struct {
	cfg  SenderConfig
	log  *slog.Logger
	m    *Metrics
	n    *series
	me   hello
	user int // whose processes are shown memory

	copies copies

	ctx  context.Context // ends at Close
	stop context.CancelFunc
	wg   sync.WaitGroup // dials, and three goroutines per link

	mu     sync.Mutex // guards the fields below and all peers; taken before link.mu
	closed bool
	peers  map[string]*peer
	links  map[*link]struct{} // whose connection is open, broken ones with loans included
	runs   map[runKey]*run
}

// NewSender returns a Sender that has no connection yet.
func NewSender(cfg SenderConfig) (Sender, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &sender{
		cfg: cfg, log: cfg.Logger, m: cfg.Metrics, n: cfg.Metrics.side(sideSender),
		me: hello{Engine: cfg.Engine, Model: cfg.Model, Cols: cfg.Cols, DType: cfg.DType, Keys: KeyVersion,
			Version: cfg.Version, place: here()},
		user:   os.Geteuid(),
		copies: copies{byBuf: make(map[*arena.Buf]*duplicate)},
		peers:  make(map[string]*peer),
		links:  make(map[*link]struct{}),
		runs:   make(map[runKey]*run),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Send implements Sender.
func (s *sender) Send(ctx context.Context, g control.Grant, buf *arena.Buf) error {
	s.n.inFlight.Inc()
	defer s.n.inFlight.Dec()
	reason, err := s.join(ctx, g, buf)
	if err != nil {
		s.m.transfers.WithLabelValues(sideSender, resultOf(err), reason).Inc()
		return fmt.Errorf("send of transfer %s to %s: %w", g.Transfer, g.Address, err)
	}
	s.n.done.Inc()
	return nil
}

// runKey names a transfer at a sender.
type runKey struct {
	address string
	flight
}

// run is a Send at work, which equal ones join.
type run struct {
	buf    *arena.Buf
	done   chan struct{} // closed when the fields below are set; nil while nobody joined; guarded by sender.mu
	over   bool          // its caller gave up, and nobody knows the outcome
	reason string
	err    error
}

// join delivers buf, or waits for a Send that does so already. When the caller that leads gives up, one
// that joined takes over.
func (s *sender) join(ctx context.Context, g control.Grant, buf *arena.Buf) (reason string, err error) {
	id, err := parseTransfer(g.Transfer)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrGone, err)
	}
	if buf.Len() != g.Bytes {
		return statusSize.String(), fmt.Errorf("%w: object has %d bytes, the grant is for %d", ErrRejected, buf.Len(), g.Bytes)
	}
	key := runKey{g.Address, flight{id, g.Attempt}}
	for {
		r, leads := s.enter(key, buf)
		if leads {
			return s.lead(ctx, key, r, g)
		}
		if r.buf != buf {
			return "conflict", fmt.Errorf("%w: another object is being sent as this transfer", ErrRejected)
		}
		select {
		case <-r.done:
			if !r.over {
				return r.reason, r.err
			}
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for an equal send: %w", context.Cause(ctx))
		}
	}
}

// enter returns the run of a transfer, and whether the caller leads it.
func (s *sender) enter(key runKey, buf *arena.Buf) (r *run, leads bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[key]; r != nil {
		if r.buf == buf && r.done == nil {
			r.done = make(chan struct{})
		}
		return r, false
	}
	r = &run{buf: buf}
	s.runs[key] = r
	return r, true
}

// lead delivers and tells those who joined.
func (s *sender) lead(ctx context.Context, key runKey, r *run, g control.Grant) (string, error) {
	d := &delivery{s: s, grant: g, flight: key.flight, buf: r.buf}
	end := d.run(ctx)
	s.mu.Lock()
	delete(s.runs, key)
	r.over = end == givenUp
	r.reason, r.err = d.reason, d.err
	joined := r.done
	s.mu.Unlock()
	if joined != nil {
		close(joined)
	} else if end == givenUp && d.link != nil {
		d.link.abandon(key.flight, d.err.Error())
	}
	return d.reason, d.err
}

// resultOf names the outcome of a Send in metrics.
func resultOf(err error) string {
	switch {
	case err == nil:
		return "complete"
	case errors.Is(err, ErrRefused):
		return "refused"
	case errors.Is(err, ErrGone):
		return "gone"
	case errors.Is(err, ErrRejected):
		return "rejected"
	case errors.Is(err, ErrPeer):
		return "peer"
	}
	return "cancelled"
}

// Close implements Sender.
func (s *sender) Close() error {
	s.mu.Lock()
	s.closed = true
	links := slices.Collect(maps.Keys(s.links))
	s.mu.Unlock()
	s.stop()
	for _, l := range links {
		l.shut()
	}
	s.wg.Wait()
	return nil
}
