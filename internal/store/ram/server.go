// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"afterimage/internal/arena"
)

// Config sets up a Server. Zero values mean the default, which each field names.
type Config struct {
	// MaxBytes bounds all objects and uploads together. Required.
	MaxBytes int64
	// MaxObjectBytes bounds one object, so that none can push out all others; MaxBytes/2.
	MaxObjectBytes int64
	// MaxConns bounds open connections; 256. Each costs a goroutine and some KiB.
	MaxConns int
	// IOTimeout bounds one reply to a client, and the time from reserve to commit, not counting 1 s
	// per 32 MiB; 10 s. A client that stalls longer is cut off and frees what it held.
	IOTimeout time.Duration
	// Arena holds the objects. The Server makes one of MaxBytes, and closes it, when Arena is nil. Of
	// an Arena that is given, ranges that are on loan as the Server closes stay in quarantine.
	Arena *arena.Arena
	// Mapped has the Server's own arena lend in race builds, too, where it is Go memory otherwise.
	Mapped bool
	// Quota returns the most bytes that a tenant's objects may take up; 0 is no limit, as is nil for
	// all tenants. It is called under a lock and must not block.
	Quota func(tenant string) int64
	// Logger gets one line per refused or broken connection; slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	c.MaxObjectBytes = cmp.Or(c.MaxObjectBytes, c.MaxBytes/2)
	c.MaxConns = cmp.Or(c.MaxConns, 256)
	c.IOTimeout = cmp.Or(c.IOTimeout, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.MaxBytes <= 0:
		return c, fmt.Errorf("ram: MaxBytes is %d, want more than 0", c.MaxBytes)
	case c.MaxObjectBytes <= 0 || c.MaxObjectBytes > c.MaxBytes:
		return c, fmt.Errorf("ram: MaxObjectBytes is %d, want 1 to MaxBytes (%d)", c.MaxObjectBytes, c.MaxBytes)
	case c.MaxConns < 0:
		return c, fmt.Errorf("ram: MaxConns is %d, want more than 0", c.MaxConns)
	case c.IOTimeout < 0:
		return c, fmt.Errorf("ram: IOTimeout is %v, want more than 0", c.IOTimeout)
	}
	return c, nil
}

// Server keeps the objects. Its methods may be called from any goroutine.
type Server struct {
	cfg      Config
	shelf    *shelf
	epoch    uint64
	ownArena bool
	uid      int // the only user that may connect
	watch    *watch
	copies   bool // readers get copies only, which they check themselves: PUTs need no check

	stop context.CancelFunc // ends every Serve and session
	ctx  context.Context
	wg   sync.WaitGroup // Serve calls and sessions; Add only under mu and before closing

	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	closing bool

	borrowers map[uint64]*borrower

	refused   atomic.Uint64 // connections of other users or over MaxConns
	malformed atomic.Uint64 // connections closed for what they sent
}

// NewServer makes an empty Store.
func NewServer(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	own := cfg.Arena == nil
	if own {
		if cfg.Arena, err = arena.New(arena.Config{Name: "afterimage-store", Bytes: cfg.MaxBytes, Mapped: cfg.Mapped}); err != nil {
			return nil, fmt.Errorf("ram: %w", err)
		}
	}
	sk, ix, err := newDirectory(cfg.MaxBytes)
	if err != nil {
		if own {
			err = errors.Join(err, cfg.Arena.Close())
		}
		return nil, err
	}
	s := &Server{
		cfg:       cfg,
		shelf:     newShelf(cfg.Arena, cfg.MaxBytes, cfg.MaxObjectBytes),
		epoch:     rand.Uint64(),
		ownArena:  own,
		uid:       processUID(),
		watch:     newWatch(cfg.IOTimeout),
		conns:     make(map[net.Conn]struct{}),
		borrowers: make(map[uint64]*borrower),
	}
	s.shelf.sketch, s.shelf.index, s.shelf.quota = sk, ix, cfg.Quota
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.wg.Go(func() { s.shelf.keepHouse(s.ctx) })
	return s, nil
}

// newDirectory makes what clients look into before they ask.
func newDirectory(limit int64) (*sketch, *index, error) {
	sk, err := newSketch(limit)
	if err != nil {
		return nil, nil, err
	}
	ix, err := newIndex(limit)
	if err != nil {
		return nil, nil, errors.Join(err, sk.close())
	}
	return sk, ix, nil
}

// Serve accepts connections from ln, which it closes, until ctx ends or Close is called. Both are no
// error. Sessions that are open then are cut. After Close it returns at once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if !s.begin(nil) {
		return ln.Close()
	}
	defer s.wg.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	defer ln.Close()
	for {
		nc, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				nc.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("ram: listener closed by another: %w", err)
		case err != nil:
			// Out of descriptors, most likely: sessions that end give some back.
			s.cfg.Logger.Warn("store: accept failed", "error", err)
			if !pause(ctx, 50*time.Millisecond) {
				return nil
			}
		default:
			s.admit(ctx, nc)
		}
	}
}

// admit starts a session for nc, or closes it.
func (s *Server) admit(ctx context.Context, nc net.Conn) {
	if err := checkPeer(nc, s.uid); err != nil {
		s.refused.Add(1)
		s.cfg.Logger.Warn("store: connection refused", "error", err)
		nc.Close()
		return
	}
	if !s.begin(nc) {
		s.refused.Add(1)
		s.cfg.Logger.Warn("store: connection refused", "limit", s.cfg.MaxConns)
		nc.Close()
		return
	}
	go func() {
		defer s.wg.Done()
		defer s.forget(nc)
		defer context.AfterFunc(ctx, func() { nc.Close() })()
		newSession(s, nc).run()
	}()
}

// begin counts a session (or, with nil, a Serve call), unless the Server is closing or full.
func (s *Server) begin(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || nc != nil && len(s.conns) >= s.cfg.MaxConns {
		return false
	}
	s.wg.Add(1)
	if nc != nil {
		s.conns[nc] = struct{}{}
	}
	return true
}

// forget ends what begin counted for a connection.
func (s *Server) forget(nc net.Conn) {
	nc.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, nc)
}

// Close ends all sessions, waits for them and gives back all memory. Loans that are out stay readable,
// as their memory is not used again. Further calls do nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil
	}
	s.closing = true
	s.shelf.refuse()
	for nc := range s.conns {
		nc.Close()
	}
	s.mu.Unlock()
	s.stop()
	s.wg.Wait()
	s.shelf.close()
	err := errors.Join(s.shelf.sketch.close(), s.shelf.index.close())
	if s.ownArena {
		err = errors.Join(err, s.cfg.Arena.Detach())
	}
	return err
}

// pause waits for d and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
