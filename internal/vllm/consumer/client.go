// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config sets up a Client. Zero values mean the default, which each field names.
type Config struct {
	// CallTimeout bounds one call on a control channel, its connection included; 2 s. It takes 0.5 ms, and up to 0.1 s
	// while the worker generates.
	CallTimeout time.Duration
	// WriteTimeout bounds one write, beside a second for each 16 MiB; 5 s. 30 MiB take 15 ms over loopback.
	WriteTimeout time.Duration
	// FollowTimeout is how long another writer of the same embedding is waited for; 5 s.
	FollowTimeout time.Duration
	// Drain is the time between a sign of life after a data connection broke in a write and the abandonment of its
	// transfer: what the consumer's host has received it still applies, and abandoned memory has a new owner at once;
	// 1 s.
	Drain time.Duration
	// Settle is how long a consumer that cannot be told of an abandoned transfer is tried; 10 min, twice the time
	// after which it forgets transfers.
	Settle time.Duration
	// Leave is how long a consumer that did not answer gets nothing at first; it doubles up to 16 times that; 1 s.
	Leave time.Duration
	// LeaveUnfit is the same after ErrUnfit; 10 min.
	LeaveUnfit time.Duration
	// Dial makes connections; nil is net.Dialer's.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Logger is told once of each consumer that is unfit; slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.CallTimeout = cmp.Or(c.CallTimeout, 2*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 5*time.Second)
	c.FollowTimeout = cmp.Or(c.FollowTimeout, 5*time.Second)
	c.Drain = cmp.Or(c.Drain, time.Second)
	c.Settle = cmp.Or(c.Settle, 10*time.Minute)
	c.Leave = cmp.Or(c.Leave, time.Second)
	c.LeaveUnfit = cmp.Or(c.LeaveUnfit, 10*time.Minute)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Dial == nil {
		var d net.Dialer
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
	}
	return c
}

// ErrLeftAlone: the consumer failed a moment ago, and was not asked.
var ErrLeftAlone = errors.New("the consumer is left alone for a while after it failed")

// Client delivers to any number of consumers, and keeps connections to them. All methods may be called from any
// goroutine.
type Client struct {
	cfg  Config
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	bg   sync.WaitGroup // abandonments

	mu    sync.Mutex // guards what follows
	peers map[string]*peer
}

// New returns a Client without connections.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg.withDefaults(), peers: map[string]*peer{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Close ends the attempts to abandon transfers that consumers were not told of, and all connections. No call may be
// in progress.
func (c *Client) Close() {
	c.stop()
	c.bg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.peers {
		p.drop()
	}
}

// Forget closes what is kept of the consumer at address, which is gone or another process.
func (c *Client) Forget(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[plain(address)]; p != nil {
		delete(c.peers, plain(address))
		p.drop()
	}
}

// peer returns the consumer at address, host:port with or without tcp://.
func (c *Client) peer(address string) *peer {
	address = plain(address)
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[address]
	if p == nil {
		p = &peer{c: c, address: address, idle: map[string][]*requester{}, engines: map[string][]*engine{}}
		c.peers[address] = p
	}
	return p
}

func plain(address string) string { return strings.TrimPrefix(address, "tcp://") }

// bound returns a context for one step, which ends with its own deadline alone.
func bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// peer is what is known of a consumer.
type peer struct {
	c       *Client
	address string

	mu        sync.Mutex              // guards what follows
	dropped   bool                    // keeps no connections any more
	ports     []int                   // of the shards, as the latest connection was told
	idle      map[string][]*requester // by address
	engines   map[string][]*engine    // by session
	fails     int                     // in a row
	leftUntil time.Time
	said      string // why it is unfit, as it was logged
}

// maxIdle is how many connections of each kind are kept to each shard.
const maxIdle = 4

// takeIdle returns a kept connection that is still open.
func takeIdle[C interface {
	idle() bool
	close()
}](list []C) (c C, rest []C, ok bool) {
	for len(list) > 0 {
		c, list = list[len(list)-1], list[:len(list)-1]
		if c.idle() {
			return c, list, true
		}
		c.close()
	}
	return c, list, false
}

// drop closes what is kept.
func (p *peer) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped = true
	for _, list := range p.idle {
		for _, q := range list {
			q.close()
		}
	}
	for _, list := range p.engines {
		for _, e := range list {
			e.close()
		}
	}
	p.idle, p.engines, p.ports = map[string][]*requester{}, map[string][]*engine{}, nil
}

// keep keeps q for the next call, unless it had an error.
func (p *peer) keep(address string, q *requester, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || p.dropped || len(p.idle[address]) == maxIdle {
		q.close()
		return
	}
	p.idle[address] = append(p.idle[address], q)
}

// leave notes that the consumer did not answer, or cannot be written to.
func (p *peer) leave(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports = nil
	wait := p.c.cfg.Leave << min(p.fails, 4)
	p.fails++
	if errors.Is(err, ErrUnfit) {
		if wait = p.c.cfg.LeaveUnfit; p.said != err.Error() {
			p.said = err.Error()
			p.c.cfg.Logger.Warn("no Store hits are delivered to this consumer: Encoders deliver to it", "consumer", p.address, "cause", err)
		}
	}
	p.leftUntil = time.Now().Add(wait)
}

// well notes that the consumer did what it was asked.
func (p *peer) well() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails, p.leftUntil = 0, time.Time{}
}

// left says whether the consumer is to be left alone.
func (p *peer) left() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.leftUntil)
}

// shards returns the control addresses of all shards, and a connection to the first.
func (p *peer) shards(ctx context.Context) ([]string, *requester, error) {
	q, err := p.control(ctx, p.address)
	if err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	ports := slices.Clone(p.ports)
	p.mu.Unlock()
	if ports == nil { // they were forgotten since q was made
		if ports, err = p.ask(ctx, q); err != nil {
			q.close()
			return nil, nil, err
		}
	}
	return p.addresses(ports), q, nil
}
