// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// Level grades a Finding.
type Level string

// The levels of findings.
const (
	Fine Level = "ok"
	Warn Level = "warn" // works, with a drawback
	Fail Level = "fail" // the Store cannot be used
)

// Finding is one line of a diagnosis.
type Finding struct {
	Level Level  `json:"level"`
	Part  string `json:"part"` // what was looked at
	Text  string `json:"text"` // what was found
	Mend  string `json:"mend,omitempty"`
}

// probeBytes is the size of the object that Probe stores, reads and removes.
const probeBytes = 64 << 10

// Probe looks at the mooncake_client of cfg and the cluster behind it, and reports line by line. It
// stores and removes one small object. The first part that fails is the last finding. start is how the
// mooncake_client would be started, for the mend.
func Probe(ctx context.Context, cfg Config, start Server) []Finding {
	p := &prober{cfg: cfg.withDefaults(), start: start}
	for _, step := range []func(context.Context) bool{p.config, p.connect, p.release, p.master, p.memory, p.object} {
		if !step(ctx) {
			break
		}
	}
	p.close()
	return p.found
}

type prober struct {
	cfg   Config
	start Server
	found []Finding
	l     *link
	a     *arena.Arena
	c     *Client
}

func (p *prober) say(level Level, part, mend, format string, args ...any) bool {
	p.found = append(p.found, Finding{Level: level, Part: part, Text: fmt.Sprintf(format, args...), Mend: mend})
	return level != Fail
}

const clientMend = "set mooncake.client to host:port of this host's mooncake_client"

func (p *prober) config(context.Context) bool {
	if err := p.cfg.Validate(); err != nil {
		return p.say(Fail, "configuration", clientMend, "%v", err)
	}
	return true
}

func (p *prober) connect(ctx context.Context) bool {
	ctx, cancel := timeout(ctx, dialTimeout)
	defer cancel()
	start := time.Now()
	l, err := dialLink(ctx, p.cfg)
	var release *errRelease
	switch {
	case errors.As(err, &release):
		return p.say(Fail, "release", "run mooncake 0.3.13.post1 on all hosts, and name this host's mooncake_client in mooncake.client", "%v", err)
	case errors.Is(err, unix.ECONNREFUSED):
		return p.say(Fail, "mooncake_client", "start it: "+p.start.Command(), "nobody listens at %s", p.cfg.Addr)
	case errors.As(err, new(*net.DNSError)) || errors.As(err, new(*net.AddrError)):
		return p.say(Fail, "configuration", clientMend, "%v", err)
	case err != nil:
		return p.say(Fail, "mooncake_client", "look whether something else listens at "+p.cfg.Addr, "no answer at %s: %v", p.cfg.Addr, err)
	}
	p.l = l
	return p.say(Fine, "mooncake_client", "", "answers at %s (%v for %d connections)", p.cfg.Addr,
		time.Since(start).Round(time.Millisecond), 1+p.cfg.ReadConns+p.cfg.WriteConns)
}

func (p *prober) release(context.Context) bool {
	r := p.l.layout.release
	if r == "0.3.11" {
		return p.say(Warn, "release", "install mooncake 0.3.13.post1 on all hosts", "speaks as %s, which reports TCP writes as done before they are", r)
	}
	return p.say(Fine, "release", "", "speaks as %s", r)
}

func (p *prober) master(ctx context.Context) bool {
	ctx, cancel := timeout(ctx, trialTimeout)
	defer cancel()
	const mend = "start mooncake_master, and check --master_server_address of mooncake_client and the network between them"
	start := time.Now()
	rs, err := p.l.read().exist(ctx, []string{"afterimage-probe"})
	switch {
	case err != nil:
		return p.say(Fail, "master", mend, "no answer through mooncake_client: %v", err)
	case rs[0].code != codeOK:
		return p.say(Fail, "master", mend, "%v", rs[0].code)
	}
	return p.say(Fine, "master", "", "answers through mooncake_client in %v", time.Since(start).Round(10*time.Microsecond))
}

// memory hands an arena over, as a worker does.
func (p *prober) memory(ctx context.Context) bool {
	p.l.close()
	p.l = nil
	a, err := arena.New(arena.Config{Name: "afterimage-probe", Bytes: 4 * probeBytes})
	if err != nil {
		return p.say(Fail, "memory", "", "%v", err)
	}
	p.a = a
	start := time.Now()
	cfg := p.cfg
	cfg.RegisterTimeout = min(cfg.RegisterTimeout, 10*time.Second)
	c, err := Open(ctx, cfg, a)
	if err != nil {
		return p.say(Fail, "memory", "", "%v", err)
	}
	p.c = c
	l, s := c.current()
	if l == nil {
		return p.say(Fail, "memory", memoryMend(c.cause), "the arena was not taken: %v", c.cause)
	}
	took := time.Since(start).Round(time.Millisecond)
	if s.proc.pidfd < 0 {
		return p.say(Warn, "memory", "share the pid namespace with mooncake_client, or use Linux 6.5 or newer",
			"arena handed over (%v); the process that holds it cannot be watched, so memory in doubt does not come back when it dies", took)
	}
	return p.say(Fine, "memory", "", "arena handed over to process %d (%v)", s.proc.pid, took)
}

func memoryMend(err error) string {
	var op *net.OpError
	switch {
	case errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, os.ErrNotExist):
		return "run the worker on the host and in the network namespace of mooncake_client: the same pod, or hostNetwork"
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &op) && op.Timeout():
		return "look for a storage node that stands still: mooncake_client takes memory only between transfers"
	}
	return "look into the log of mooncake_client"
}

// object sends one object to the cluster and back.
func (p *prober) object(ctx context.Context) bool {
	ctx, cancel := timeout(ctx, p.cfg.CallTimeout)
	defer cancel()
	b, err := p.a.Reserve(probeBytes)
	if err != nil {
		return p.say(Fail, "object", "", "%v", err)
	}
	defer b.Release()
	for i := range b.Bytes() {
		b.Bytes()[i] = byte(i)
	}
	b.Commit()
	id := newUUID()
	k := embedding.Key(fmt.Sprintf("afterimage-probe@id:%016x%016x", id[0], id[1]))
	defer p.forget(ctx, string(k))
	start := time.Now()
	if err := p.c.Put(ctx, k, b, store.PutOptions{}); err != nil {
		return p.say(Fail, "object", "give the cluster memory: --global_segment_size of this or another mooncake_client; "+
			"a full one frees space by itself within --default_kv_lease_ttl", "PUT of %d bytes: %v", probeBytes, err)
	}
	put := time.Since(start)
	start = time.Now()
	g := p.c.Get(ctx, []store.Want{{Key: k, Bytes: probeBytes, Exact: true}})[0]
	if g.Err != nil {
		return p.say(Fail, "object", "check that the hosts reach each other on ports 12300 to 17000", "GET: %v", g.Err)
	}
	got := time.Since(start)
	same := bytes.Equal(g.Buf.Bytes(), b.Bytes())
	g.Buf.Release()
	if !same {
		return p.say(Fail, "object", "run one release of Mooncake, 0.3.12 or newer, on all hosts", "what came back differs from what was stored")
	}
	p.say(Fine, "object", "", "%d KiB stored in %v and read in %v", probeBytes>>10, put.Round(10*time.Microsecond), got.Round(10*time.Microsecond))
	return p.say(Fine, "limits", "", "keys to %d bytes, %d keys and %d MiB in one call, objects to the largest free piece of one segment",
		maxKeyBytes, maxBatchKeys, maxBatchBytes>>20)
}

// forget removes the object although the GET leased it: nobody else knows its key.
func (p *prober) forget(ctx context.Context, key string) {
	if l, _ := p.c.current(); l != nil {
		_, _ = l.write().remove(ctx, []string{key}, true) // without, the cluster evicts it in time
	}
}

func (p *prober) close() {
	if p.l != nil {
		p.l.close()
	}
	if p.c != nil {
		if err := p.c.Close(); err != nil {
			p.say(Warn, "close", "", "%v", err)
			return // the arena is in use
		}
	}
	if p.a != nil {
		if err := p.a.Close(); err != nil {
			p.say(Warn, "close", "", "%v", err)
		}
	}
}
