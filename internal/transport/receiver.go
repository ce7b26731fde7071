// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"afterimage/internal/embedding"
)

// receiver implements Receiver. One goroutine per listener accepts, two per connection read and write.
type receiver struct {
	cfg        ReceiverConfig
	log        *slog.Logger
	m          *Metrics
	n          *series
	me         hello
	user       int // whose processes may take the socket of this host
	generation uint64
	address    string
	listeners  []net.Listener
	// open checks an object in place, all bytes of which the Checker has seen. It is openObject but in tests
	// of the frames.
	open func(Want, []byte, *embedding.Checker) (embedding.Meta, error)

	// line is held by the Turn at its head, memory or not, so that small requests never overtake a large
	// one. It is taken before mu and never under it.
	line *semaphore.Weighted
	ctx  context.Context // ends at Close
	stop context.CancelFunc
	wg   sync.WaitGroup // accept loops, sessions, and Grants that run

	mu       sync.Mutex // guards the fields below, all rooms and tickets; locks of arenas and outboxes may be taken under it
	closed   bool
	live     map[transferID]*ticket  // those that a sender may still name
	rooms    map[embedding.Key]*room // those that a Grant may join
	idle     idleList                // tickets that nobody waits for
	past     *tombstones
	ids      *mathrand.ChaCha8 // of transfers
	sessions map[*session]struct{}
}

// NewReceiver listens and serves until Close.
func NewReceiver(cfg ReceiverConfig) (Receiver, error) {
	return newReceiver(cfg)
}

func newReceiver(cfg ReceiverConfig) (*receiver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if cfg.Listener == nil {
		ln, err := net.Listen("tcp", cfg.Address)
		if err != nil {
			return nil, fmt.Errorf("transport: data listener: %w", err)
		}
		cfg.Listener = ln
	}
	setDefault(&cfg.Advertise, cfg.Listener.Addr().String())
	r := &receiver{
		cfg: cfg, log: cfg.Logger, m: cfg.Metrics, n: cfg.Metrics.side(sideReceiver),
		me: hello{Engine: cfg.Engine, Model: cfg.Model, Cols: cfg.Cols, DType: cfg.DType, Keys: KeyVersion,
			Version: cfg.Version, place: here()},
		user:       os.Geteuid(),
		generation: newGeneration(),
		address:    cfg.Advertise,
		listeners:  []net.Listener{cfg.Listener},
		open:       openObject,
		line:       semaphore.NewWeighted(1),
		live:       make(map[transferID]*ticket),
		rooms:      make(map[embedding.Key]*room),
		past:       new(tombstones),
		ids:        mathrand.NewChaCha8(seed()),
		sessions:   make(map[*session]struct{}),
	}
	if err := r.listenNear(); err != nil {
		return nil, errors.Join(err, cfg.Listener.Close())
	}
	r.idle.r = r
	r.ctx, r.stop = context.WithCancel(context.Background())
	for _, ln := range r.listeners {
		r.wg.Go(func() { r.accept(ln) })
	}
	return r, nil
}

// listenNear opens the socket for senders of this host, if they are wanted.
func (r *receiver) listenNear() error {
	if !r.cfg.Local {
		return nil
	}
	ln, name, err := listenNear()
	if err == nil {
		r.me.Socket = name
		r.listeners = append(r.listeners, ln)
	}
	return err
}

// openObject checks obj with the format that the want names.
func openObject(w Want, obj []byte, c *embedding.Checker) (embedding.Meta, error) {
	meta, _, err := c.Open(obj, w.Key, w.Contract)
	return meta, err
}

func seed() (b [32]byte) {
	rand.Read(b[:]) // never fails (crypto/rand)
	return b
}

// newGeneration names this process. It has 53 bits, so that every JSON reader keeps it exact, and is
// never 0, which frames use for "not known yet".
func newGeneration() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(b[:])>>11 | 1
}

// Address implements Receiver.
func (r *receiver) Address() string { return r.address }

// Close implements Receiver.
func (r *receiver) Close() error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	// Waiters learn at once. Memory that a writer holds comes back when its session ends, which closing
	// the connection brings about.
	for _, t := range r.live {
		r.stepTicketLocked(t, evCancel, "closed", ErrClosed)
	}
	for s := range r.sessions {
		s.interrupt()
	}
	r.idle.stop()
	r.mu.Unlock()
	r.stop()
	var errs []error
	if first {
		for _, ln := range r.listeners {
			errs = append(errs, ln.Close())
		}
	}
	r.wg.Wait()
	return errors.Join(errs...)
}

// accept takes connections until the listener closes. An error that may pass, such as too many open
// files, is retried with a growing pause.
func (r *receiver) accept(ln net.Listener) {
	const maxPause = time.Second
	pause := 5 * time.Millisecond
	for {
		nc, err := ln.Accept()
		if err == nil {
			pause = 5 * time.Millisecond
			r.serve(nc)
			continue
		}
		if r.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		r.log.Warn("data listener cannot accept", "err", err, "retry_in", pause)
		select {
		case <-time.After(pause):
		case <-r.ctx.Done():
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// serve starts a session, unless the Receiver is closed.
func (r *receiver) serve(nc net.Conn) {
	tune(nc)
	near, _ := nc.(*net.UnixConn)
	if r.cfg.TLS != nil && near == nil {
		nc = tls.Server(nc, r.cfg.TLS) // the handshake is part of the first read
	}
	s := newSession(r, nc, near)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		nc.Close()
		return
	}
	// Under mu, so that Close either sees the session or stops it from starting.
	r.sessions[s] = struct{}{}
	r.wg.Go(s.run)
	r.wg.Go(s.answers.run)
}
