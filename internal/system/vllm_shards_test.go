// SPDX-License-Identifier: Apache-2.0

//go:build vllm && !race

package system

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/testkit"
	"afterimage/internal/vllm/consumer"
)

// bareConsumer is what takes embeddings in a vLLM prefill worker with two tensor-parallel ranks: per rank a process with
// vLLM's control server, reservations and memory pool, and Mooncake's Transfer Engine, all from their wheels. There is no
// model and no engine.
type bareConsumer struct {
	ranks   []*testkit.Process
	address string // of rank 0's control channel
	second  string // of rank 1's
}

// barePool is the memory of each rank. One embedding of the test fills it, so that a byte more in use is noticed.
const barePool = 16 << 20

func startBareConsumer(t *testing.T) *bareConsumer {
	t.Helper()
	root := must[string](t)(filepath.Abs("../.."))
	ports := []string{strconv.Itoa(testkit.FreePort(t)), strconv.Itoa(testkit.FreePort(t))}
	c := &bareConsumer{address: "127.0.0.1:" + ports[0], second: "127.0.0.1:" + ports[1]}
	for n, port := range ports {
		c.ranks = append(c.ranks, testkit.StartProcess(t, fmt.Sprintf("rank%d", n), func() *exec.Cmd {
			return exec.Command("bash", "-c", `source "$0"/scripts/peers_env.sh && exec python -W ignore "$@"`, root,
				filepath.Join(root, "internal", "bench", "relaypeer.py"), "consumer", port, strconv.Itoa(barePool), ports[0]+","+ports[1])
		}))
	}
	return c
}

func (c *bareConsumer) each(f func(*testkit.Process)) {
	for _, p := range c.ranks {
		f(p)
	}
}

func (c *bareConsumer) freeze() { c.each((*testkit.Process).Freeze) }
func (c *bareConsumer) thaw()   { c.each(func(p *testkit.Process) { p.Signal(syscall.SIGCONT) }) }

// tapped is a data connection that notes where it writes to.
type tapped struct {
	net.Conn
	to *written
}

// SetLinger is passed on, as all of a connection's methods have to be.
func (c tapped) SetLinger(s int) error { return c.Conn.(*net.TCPConn).SetLinger(s) }

func (c tapped) Write(p []byte) (int, error) {
	if len(p) == 24 { // the head of a request
		c.to.note(c.RemoteAddr().String(), p)
	} else if len(p) > 1<<20 && c.to.before != nil {
		c.to.once.Do(c.to.before)
	} else if bytes.Contains(p[:min(len(p), 64)], []byte(`{"op": "status"`)) {
		c.to.poll(c.RemoteAddr().String())
	}
	return c.Conn.Write(p)
}

// written is where embeddings were written to, at both ranks.
type written struct {
	before func() // once, before the first payload is sent; may be nil
	once   sync.Once

	mu     sync.Mutex        // guards what follows
	heads  map[string][]byte // of the latest writes, by the rank's data connection
	polled map[string]bool   // ranks that were asked about transfers that others write
}

func (w *written) poll(address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.polled == nil {
		w.polled = map[string]bool{}
	}
	w.polled[address] = true
}

// waits says whether it waits for another writer at both ranks.
func (w *written) waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.polled) == 2
}

func (w *written) note(address string, head []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.heads == nil {
		w.heads = map[string][]byte{}
	}
	w.heads[address] = bytes.Clone(head)
}

func (w *written) dial(ctx context.Context, address string) (net.Conn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return tapped{nc, w}, nil
}

// read reads through the ranks' Transfer Engines what is where the latest writes went.
func (w *written) read(t *testing.T) (out [][]byte) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for address, head := range w.heads {
		nc := must[net.Conn](t)(net.Dial("tcp", address))
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
		head[16] = 0x80 // READ
		must[int](t)(nc.Write(head))
		b := make([]byte, 8+binary.LittleEndian.Uint64(head))
		if _, err := io.ReadFull(nc, b); err != nil || string(b[:8]) != "\x00\x00\x00\x00VTCM" {
			t.Fatalf("READ of %s: % x, %v", address, b[:8], err)
		}
		out = append(out, b[8:])
	}
	return out
}

// bareItem is an embedding under a name and a transfer id of its own, which fills the pool if large.
func bareItem(v byte, large bool) consumer.Item {
	name := fresh()
	it := consumer.Item{Transfer: name, Hash: "h" + name, Rows: 64, Cols: 128, DType: "bfloat16", Size: 2}
	if large {
		it.Rows = barePool / it.Cols / it.Size
	}
	it.Payload = func(context.Context) ([]byte, error) { return bytes.Repeat([]byte{v}, it.Bytes()), nil }
	return it
}

// TestVLLMShards delivers to a consumer of two tensor-parallel ranks that is vLLM's own code, and has each fault of one
// befall it: whatever happens, all memory of both ranks can be had again, and no byte comes to where it does not belong.
func TestVLLMShards(t *testing.T) {
	c := startBareConsumer(t)
	probe := consumer.New(consumer.Config{Leave: time.Nanosecond, Logger: quiet})
	t.Cleanup(probe.Close)
	for end := time.Now().Add(vllmStart); ; time.Sleep(200 * time.Millisecond) {
		n, err := probe.Check(t.Context(), c.address)
		if err == nil {
			if n != 2 {
				t.Fatalf("%d ranks, want 2", n)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	s := &shardSuite{c: c}
	for _, f := range []struct {
		name string
		test func(*testing.T)
	}{
		{"delivered to both", s.delivered}, {"cancelled before", s.cancelledBefore}, {"an id twice", s.twice},
		{"pool full", s.full}, {"another writer", s.anotherWriter}, {"another writer gives up", s.writerGivesUp}, {"a killed writer", s.killedWriter},
		{"one rank stands still at reserve", s.frozenRank}, {"both stand still in a write", s.frozenWrite}, {"killed in a write", s.killedInWrite},
		{"one rank is gone", s.goneRank},
	} {
		t.Run(f.name, func(t *testing.T) {
			start := time.Now()
			f.test(t)
			s.whole(t)
			t.Logf("%v", time.Since(start).Round(time.Millisecond))
		})
	}
}
