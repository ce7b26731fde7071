// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/control"
)

// SenderConfig configures a Sender. Engine and Cols are required; other zero values mean the default
// that the field names.
type SenderConfig struct {
	Engine string // must be equal on both sides
	Cols   int    // likewise
	// Dial opens a connection. Default: net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// DialTimeout bounds Dial. Default 2 s.
	DialTimeout time.Duration
	// PingInterval is how often a connection is asked for a sign of life. Default 5 s.
	PingInterval time.Duration
	// PeerTimeout is how long a receiver may owe an answer to a frame that was written; then its
	// connection counts as broken. It is looked at once per PingInterval. Default 15 s.
	PeerTimeout time.Duration
	Logger      *slog.Logger // default: slog.Default()
	Metrics     *Metrics     // default: not exported
}

// Validate names the first field that cannot be used.
func (c SenderConfig) Validate() error {
	switch {
	case c.Engine == "":
		return errors.New("transport: sender without an engine name")
	case c.Cols <= 0:
		return fmt.Errorf("transport: sender with %d columns", c.Cols)
	case c.DialTimeout < 0 || c.PingInterval < 0 || c.PeerTimeout < 0:
		return errors.New("transport: sender with a negative limit")
	}
	return nil
}

func (c SenderConfig) withDefaults() SenderConfig {
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	setDefault(&c.DialTimeout, 2*time.Second)
	setDefault(&c.PingInterval, 5*time.Second)
	setDefault(&c.PeerTimeout, 15*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return c
}

// sender implements Sender: one connection per address, opened by the first Send and kept.
type sender struct {
	cfg SenderConfig
	log *slog.Logger
	m   *Metrics
	me  hello

	ctx  context.Context // ends at Close
	stop context.CancelFunc
	wg   sync.WaitGroup // dials, and two goroutines per link

	mu     sync.Mutex // guards the fields below and all peers; taken before link.mu
	closed bool
	peers  map[string]*peer
}

// NewSender returns a Sender that has no connection yet.
func NewSender(cfg SenderConfig) (Sender, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &sender{
		cfg: cfg, log: cfg.Logger, m: cfg.Metrics,
		me:    hello{Engine: cfg.Engine, Cols: cfg.Cols},
		peers: make(map[string]*peer),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.m.inFlight.WithLabelValues(sideSender) // shows 0 from the start
	return s, nil
}

// Send implements Sender.
func (s *sender) Send(ctx context.Context, g control.Grant, buf *arena.Buf) error {
	running := s.m.inFlight.WithLabelValues(sideSender)
	running.Inc()
	defer running.Dec()
	reason, err := s.deliver(ctx, g, buf.Bytes())
	s.m.transfers.WithLabelValues(sideSender, resultOf(err), reason).Inc()
	if err != nil {
		return fmt.Errorf("send of transfer %s to %s: %w", g.Transfer, g.Address, err)
	}
	s.m.bytes.WithLabelValues(sideSender).Add(float64(buf.Len()))
	return nil
}

// deliver does the work of Send. reason is the receiver's status, where there is one.
func (s *sender) deliver(ctx context.Context, g control.Grant, obj []byte) (reason string, err error) {
	id, err := parseTransfer(g.Transfer)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrGone, err)
	}
	if len(obj) != g.Bytes {
		return statusSize.String(), fmt.Errorf("%w: object has %d bytes, the grant is for %d", ErrRejected, len(obj), g.Bytes)
	}
	l, err := s.connect(ctx, g.Address)
	if err != nil {
		return "", err
	}
	// A grant of a process that has restarted is void: its bytes need not travel to learn that.
	if l.generation != g.Generation {
		return statusGeneration.String(), fmt.Errorf("%w: granted by generation %d, %d answers there",
			ErrGone, g.Generation, l.generation)
	}
	return l.send(ctx, flight{id, g.Attempt}, obj)
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
	var links []*link
	for _, p := range s.peers {
		if p.link != nil {
			links = append(links, p.link)
		}
	}
	s.mu.Unlock()
	s.stop()
	for _, l := range links {
		l.fail(ErrClosed)
	}
	s.wg.Wait()
	return nil
}
