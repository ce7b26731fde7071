// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// ReceiverConfig configures a Receiver. Arena, Engine, Cols and one of Listener and Address are
// required; other zero values mean the default that the field names.
type ReceiverConfig struct {
	// Arena is the memory that is granted. Others may use it too; grants wait for what they leave.
	Arena *arena.Arena
	// Evict gives memory of the arena back that is kept in reserve, for a grant of so many bytes that has
	// found no room, and returns how many bytes came back. It is asked again after each attempt, until it
	// returns 0; then the grant waits. nil: nothing is kept. It must not block.
	Evict func(bytes int64) (freed int64)
	// Listener takes data connections; the Receiver closes it. nil listens on Address.
	Listener net.Listener
	Address  string // host:port, TCP
	// Advertise is the host:port that grants name, where it differs from the listener's address.
	Advertise string
	Engine    string // must be equal on both sides
	Cols      int    // likewise
	// MaxFrameBytes is the largest body of a data frame; a larger one closes its connection. Default:
	// the arena's capacity.
	MaxFrameBytes int64
	// GrantTTL is how long a transfer lives that nobody waits for. Default 30 s.
	GrantTTL time.Duration
	// WriterTimeout is how long a writer may make no progress within a frame. Default 2 s.
	WriterTimeout time.Duration
	// IdleTimeout closes a connection that sends no frame. Default 60 s; senders ping every 5 s.
	IdleTimeout time.Duration
	Logger      *slog.Logger // default: slog.Default()
	Metrics     *Metrics     // default: not exported
}

// Validate names the first field that cannot be used.
func (c ReceiverConfig) Validate() error {
	switch {
	case c.Arena == nil:
		return errors.New("transport: receiver without an arena")
	case c.Listener == nil && c.Address == "":
		return errors.New("transport: receiver without a listener or an address")
	case c.Engine == "":
		return errors.New("transport: receiver without an engine name")
	case c.Cols <= 0:
		return fmt.Errorf("transport: receiver with %d columns", c.Cols)
	case c.MaxFrameBytes < 0 || c.GrantTTL < 0 || c.WriterTimeout < 0 || c.IdleTimeout < 0:
		return errors.New("transport: receiver with a negative limit")
	}
	return nil
}

func (c ReceiverConfig) withDefaults() ReceiverConfig {
	setDefault(&c.MaxFrameBytes, c.Arena.Stats().Capacity)
	setDefault(&c.GrantTTL, 30*time.Second)
	setDefault(&c.WriterTimeout, 2*time.Second)
	setDefault(&c.IdleTimeout, time.Minute)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return c
}

// setDefault replaces a zero value.
func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// receiver implements Receiver. One goroutine accepts, one per connection reads.
type receiver struct {
	cfg        ReceiverConfig
	log        *slog.Logger
	m          *Metrics
	me         hello
	generation uint64
	address    string
	// open checks an object in place. It is Protocol.Open but in tests of the frames.
	open func(Want, []byte) (embedding.Meta, error)

	// turn is held by the Grant at the head of the line, memory or not, so that small requests never
	// overtake a large one. It is taken before mu and never under it.
	turn *semaphore.Weighted
	ctx  context.Context // ends at Close
	stop context.CancelFunc
	wg   sync.WaitGroup // accept loop, sessions, and Grants that run

	mu       sync.Mutex // guards the fields below and all tickets; the arena's lock may be taken under it
	closed   bool
	live     map[transferID]*ticket // not yet terminal
	past     tombstones
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
		cfg: cfg, log: cfg.Logger, m: cfg.Metrics,
		me:         hello{Engine: cfg.Engine, Cols: cfg.Cols},
		generation: newGeneration(),
		address:    cfg.Advertise,
		open:       openObject,
		turn:       semaphore.NewWeighted(1),
		live:       make(map[transferID]*ticket),
		past:       tombstones{states: make(map[transferID]state)},
		sessions:   make(map[*session]struct{}),
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.m.inFlight.WithLabelValues(sideReceiver) // shows 0 from the start
	r.wg.Go(r.accept)
	return r, nil
}

// openObject checks obj with the format that the want names.
func openObject(w Want, obj []byte) (embedding.Meta, error) {
	meta, _, err := w.Protocol.Open(obj, w.Key, w.Contract)
	return meta, err
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
		r.stepLocked(t, evCancel, "closed", ErrClosed)
	}
	for s := range r.sessions {
		s.nc.Close()
	}
	r.mu.Unlock()
	r.stop()
	var err error
	if first {
		err = r.cfg.Listener.Close()
	}
	r.wg.Wait()
	return err
}

// accept takes connections until the listener closes. An error that may pass, such as too many open
// files, is retried with a growing pause.
func (r *receiver) accept() {
	const maxPause = time.Second
	pause := 5 * time.Millisecond
	for {
		nc, err := r.cfg.Listener.Accept()
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
	s := &session{r: r, nc: nc, log: r.log.With("peer", nc.RemoteAddr().String())}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		nc.Close()
		return
	}
	// Under mu, so that Close either sees the session or stops it from starting.
	r.sessions[s] = struct{}{}
	r.wg.Go(func() {
		s.run()
		nc.Close()
		r.mu.Lock()
		delete(r.sessions, s)
		r.mu.Unlock()
	})
}
