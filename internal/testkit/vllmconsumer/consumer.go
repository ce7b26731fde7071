// SPDX-License-Identifier: Apache-2.0

package vllmconsumer

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// Config sets up a Consumer. Zero values mean the default, which each field names.
type Config struct {
	Shards    int           // tensor-parallel ranks; 1
	PoolBytes int           // memory of each shard; 1 MiB
	TTL       time.Duration // of reservations; 300 s
	// Control is asked before each request is served; nil never fails.
	Control func(shard int, op string) Fault
	// Data is asked before each write is applied; nil never fails.
	Data func(shard, write int) DataFault
	// Segment may change what a Transfer Engine says of itself; nil leaves it.
	Segment func(doc map[string]any)
	// Session may name another Transfer Engine in answers; nil leaves it.
	Session func(own string) string
}

// Fault befalls a request.
type Fault int

// The faults of the control channel.
const (
	Sound    Fault = iota
	HangUp         // the connection ends, and the request is not served
	Silence        // the request is served, and nothing is answered
	Late           // the connection stays silent; the request is served when Thaw is called
	Nonsense       // the request is not served, and the answer is no JSON
)

// DataFault befalls a write. Zero is a sound one.
type DataFault struct {
	CutAfter int  // the connection ends after that many bytes were applied, at least 1
	NoStatus bool // all is applied, and nothing is answered
	Reject   bool // nothing is applied: the address is said to be wrong
}

// Consumer is a consumer that runs until its test ends.
type Consumer struct {
	Shards []*Shard
	cfg    Config
	thaw   chan struct{}
	once   sync.Once
	serves sync.WaitGroup

	mu     sync.Mutex // guards what follows
	open   map[net.Conn]struct{}
	listen []net.Listener
	closed bool
}

// Start starts a Consumer on loopback.
func Start(t testing.TB, cfg Config) *Consumer {
	t.Helper()
	cfg.Shards, cfg.PoolBytes = max(cfg.Shards, 1), max(cfg.PoolBytes, 0)
	if cfg.PoolBytes == 0 {
		cfg.PoolBytes = 1 << 20
	}
	if cfg.TTL == 0 {
		cfg.TTL = 300 * time.Second
	}
	c := &Consumer{cfg: cfg, thaw: make(chan struct{}), open: map[net.Conn]struct{}{}}
	t.Cleanup(c.Stop)
	for n := range cfg.Shards {
		s := &Shard{c: c, n: n, rules: newRules(cfg.PoolBytes, cfg.TTL)}
		c.Shards = append(c.Shards, s)
		s.control = c.serve(t, s.serveControl)
		s.data = c.serve(t, s.serveData)
		s.engine = c.serve(t, s.serveHandshake)
	}
	return c
}

// Address is that of the control channel as it is registered.
func (c *Consumer) Address() string { return fmt.Sprintf("tcp://127.0.0.1:%d", c.Shards[0].control) }

// Thaw has requests served that were late.
func (c *Consumer) Thaw() { c.once.Do(func() { close(c.thaw) }) }

// Stop ends the consumer as a kill does. A second Stop does nothing.
func (c *Consumer) Stop() {
	c.Thaw()
	c.mu.Lock()
	c.closed = true
	for _, ln := range c.listen {
		ln.Close()
	}
	for nc := range c.open {
		nc.Close()
	}
	c.mu.Unlock()
	c.serves.Wait()
}

// HangUpAll ends all connections, as a consumer that restarts does, and goes on.
func (c *Consumer) HangUpAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for nc := range c.open {
		nc.Close()
	}
}

// serve has handle serve connections, and returns their port.
func (c *Consumer) serve(t testing.TB, handle func(net.Conn)) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.listen = append(c.listen, ln)
	c.mu.Unlock()
	c.serves.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			if c.closed {
				nc.Close()
			}
			c.open[nc] = struct{}{}
			c.mu.Unlock()
			c.serves.Go(func() {
				handle(nc)
				nc.Close()
				c.mu.Lock()
				delete(c.open, nc)
				c.mu.Unlock()
			})
		}
	})
	return ln.Addr().(*net.TCPAddr).Port
}

// Shard is one tensor-parallel rank.
type Shard struct {
	c                     *Consumer
	n                     int
	control, data, engine int // ports

	mu     sync.Mutex // guards what follows: the original serves requests one by one
	rules  *rules
	writes int
	ops    []string // as they came
}

// InUse returns how many bytes of the memory are not free.
func (s *Shard) InUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rules.pool.used
}

// Writes returns how many writes were applied, whole or in part.
func (s *Shard) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Ops returns the requests that were served, in order.
func (s *Shard) Ops() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.ops...)
}

// Ready returns the values of a transfer that a request could use at this moment, nil if there are none.
func (s *Shard) Ready(transfer string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rules.transfers[transfer]
	if r == nil || r.state != ready {
		return nil
	}
	return append([]byte(nil), s.rules.pool.bytes(r.at.off, r.bytes)...)
}

// Use has a request use a transfer, and end: the embedding is resident from then on. It returns the values, nil if the
// transfer is not ready.
func (s *Shard) Use(transfer string) []byte {
	b := s.Ready(transfer)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b != nil {
		s.rules.use(transfer)
	}
	return b
}

// Evict drops everything resident that no transfer holds.
func (s *Shard) Evict() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules.evict()
}

// Expire has all reservations reach their TTL.
func (s *Shard) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules.expire(time.Now().Add(s.c.cfg.TTL + time.Second))
}
