// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// DefaultAddr is where mooncake_client takes calls unless told otherwise.
const DefaultAddr = "127.0.0.1:50052"

// Config sets up a client. Zero values mean the default, which each field names.
type Config struct {
	// Addr is host:port of the mooncake_client, which runs on this host and in this network
	// namespace: memory is handed over through a unix socket; DefaultAddr.
	Addr string
	// ReadConns carry exists and gets, WriteConns puts and removes; 2 and 1. With the heartbeat's that
	// makes 4, one for each thread of a mooncake_client with --threads=4: a PUT holds up whatever shares
	// its thread.
	ReadConns, WriteConns int
	// CallTimeout bounds a call whose ctx allows more, which may take a sixteenth longer; 15 s. Calls to a stalled storage node end after
	// MC_TCP_PROGRESS_TIMEOUT_SEC of mooncake_client, those to a dead master after 4.4 s.
	CallTimeout time.Duration
	// RegisterTimeout bounds the handing over of the arena; 45 s. The server answers after all
	// transfers that run, which a stalled storage node can hold for 30 s.
	RegisterTimeout time.Duration
	// ClientTTL is --client_ttl of the master: for so long after an unconfirmed transfer a key is not
	// trusted; 30 s.
	ClientTTL time.Duration
	// RemoveWait is how long Remove waits for readers' leases to end before it leaves the key to the
	// background; 100 ms.
	RemoveWait time.Duration
	// MinBackoff and MaxBackoff bound the pauses between attempts to reach a mooncake_client that is
	// away; 100 ms and 2 s.
	MinBackoff, MaxBackoff time.Duration
	// GiveUpTimeout is how long more than a quarter of the arena may stay in doubt before the client
	// closes for good; 2 min, twice as long as the server needs to give a transfer up.
	GiveUpTimeout time.Duration
	// CloseTimeout bounds Close; 10 s.
	CloseTimeout time.Duration
	// StartCommand tells people how to start a mooncake_client at Addr where none is; Server's.
	StartCommand string
	// Logger takes what happens to the connection, once each; slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Addr = cmp.Or(c.Addr, DefaultAddr)
	c.ReadConns = cmp.Or(c.ReadConns, 2)
	c.WriteConns = cmp.Or(c.WriteConns, 1)
	c.CallTimeout = cmp.Or(c.CallTimeout, 15*time.Second)
	c.RegisterTimeout = cmp.Or(c.RegisterTimeout, 45*time.Second)
	c.ClientTTL = cmp.Or(c.ClientTTL, 30*time.Second)
	c.RemoveWait = cmp.Or(c.RemoveWait, 100*time.Millisecond)
	c.MinBackoff = cmp.Or(c.MinBackoff, 100*time.Millisecond)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, 2*time.Second)
	c.GiveUpTimeout = cmp.Or(c.GiveUpTimeout, 2*time.Minute)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, 10*time.Second)
	c.StartCommand = cmp.Or(c.StartCommand, Server{}.Command())
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// DefaultConfig returns the configuration that zero values mean.
func DefaultConfig() Config { return Config{}.withDefaults() }

// Validate reports the first setting that cannot work, with its limit.
func (c Config) Validate() error {
	c = c.withDefaults()
	if _, port, err := net.SplitHostPort(c.Addr); err != nil || port == "" {
		return fmt.Errorf("mooncake: address %q of mooncake_client, want host:port", c.Addr)
	}
	if c.ReadConns < 1 || c.WriteConns < 1 || c.ReadConns > 64 || c.WriteConns > 64 {
		return fmt.Errorf("mooncake: %d read and %d write connections, want 1 to 64 of each", c.ReadConns, c.WriteConns)
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"CallTimeout", c.CallTimeout}, {"RegisterTimeout", c.RegisterTimeout}, {"ClientTTL", c.ClientTTL},
		{"RemoveWait", c.RemoveWait}, {"MinBackoff", c.MinBackoff}, {"GiveUpTimeout", c.GiveUpTimeout}, {"CloseTimeout", c.CloseTimeout},
	} {
		if d.d < 0 {
			return fmt.Errorf("mooncake: %s of %v, want more than 0", d.name, d.d)
		}
	}
	if c.MaxBackoff < c.MinBackoff {
		return fmt.Errorf("mooncake: back-off from %v to %v, want them in order", c.MinBackoff, c.MaxBackoff)
	}
	return nil
}
