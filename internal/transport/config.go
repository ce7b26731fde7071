// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/quick"
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
	// Local also takes connections and loans of senders on this host, over a unix socket without a path.
	Local bool
	// TLS encrypts the connections of Listener; nil leaves them plain. Those of this host stay so.
	TLS *tls.Config

	Engine  string          // must be equal on both sides
	Cols    int             // likewise
	DType   embedding.DType // likewise
	Model   string          // likewise, unless one side names none
	Version string          // of the program, for logs

	// MaxFrameBytes is the largest body of a data frame; a larger one closes its connection. Default:
	// the arena's capacity.
	MaxFrameBytes int64
	// GrantTTL is how long a transfer lives that nobody waits for. Default 30 s.
	GrantTTL time.Duration
	// WriterTimeout is how long a writer may make no progress within a frame and take for each MiB of an
	// object, and a sender that reserved give no sign of life. Default 2 s.
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
	case c.MaxFrameBytes < 0 || c.GrantTTL < 0 || c.WriterTimeout < 0 || c.IdleTimeout < 0:
		return errors.New("transport: receiver with a negative limit")
	}
	return validRows("receiver", c.Engine, c.Cols, c.DType)
}

func validRows(who, engine string, cols int, d embedding.DType) error {
	switch {
	case engine == "":
		return fmt.Errorf("transport: %s without an engine name", who)
	case cols <= 0:
		return fmt.Errorf("transport: %s with %d columns", who, cols)
	case d.Bytes() == 0:
		return fmt.Errorf("transport: %s with unknown element type %v", who, d)
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

// SenderConfig configures a Sender. Engine and Cols are required; other zero values mean the default
// that the field names.
type SenderConfig struct {
	Engine  string          // must be equal on both sides
	Cols    int             // likewise
	DType   embedding.DType // likewise
	Model   string          // likewise, unless one side names none
	Version string          // of the program, for logs

	// Arena is the memory that receivers on this host may map, so that its Bufs are lent to them. At
	// most half of it is on loan at a time; what is beyond is copied. nil lends nothing.
	Arena *arena.Arena
	// TLS encrypts connections to other hosts; nil leaves them plain. Its ServerName, if empty, becomes
	// the host of the address.
	TLS *tls.Config
	// Dial opens a connection. Default: net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// DialTimeout bounds Dial. Default 2 s.
	DialTimeout time.Duration
	// PingInterval is how often an idle connection is asked for a sign of life. Default 5 s; one that
	// delivers, or has reserved, is asked every 500 ms.
	PingInterval time.Duration
	// PeerTimeout is how long a receiver may owe an answer to a frame that was written; then its
	// connection counts as broken. Default 8 s.
	PeerTimeout time.Duration
	// Polls says how long answers of a receiver on this host are looked for before the reader sleeps;
	// quick.DefaultBudget.
	Polls   *quick.Policy
	Logger  *slog.Logger // default: slog.Default()
	Metrics *Metrics     // default: not exported
}

// Validate names the first field that cannot be used.
func (c SenderConfig) Validate() error {
	if c.DialTimeout < 0 || c.PingInterval < 0 || c.PeerTimeout < 0 {
		return errors.New("transport: sender with a negative limit")
	}
	return validRows("sender", c.Engine, c.Cols, c.DType)
}

func (c SenderConfig) withDefaults() SenderConfig {
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	setDefault(&c.DialTimeout, 2*time.Second)
	setDefault(&c.PingInterval, 5*time.Second)
	setDefault(&c.PeerTimeout, 8*time.Second)
	if c.Polls == nil {
		c.Polls = quick.NewPolicy(quick.DefaultBudget)
	}
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
