// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"afterimage/internal/arena"
	"afterimage/internal/vllm/consumer"
)

//go:embed relaypeer.py
var relayScript []byte

// Relay measures deliveries into the memory of a vLLM consumer: ours, and those of vLLM's own producer.
type Relay struct {
	Python   string    // of make peers; "" when it is not installed
	Dir      string    // of Mooncake's libraries
	Env      []string  // of the processes
	Progress io.Writer // for people; nil for none
	Rounds   Rounds
	Sizes    []int // bytes of the embeddings, multiples of 256
}

// DefaultRelay returns the figures that the targets are stated for.
func DefaultRelay() Relay {
	return Relay{Rounds: Rounds{Rounds: 5, Warmup: 5, Samples: 30}, Sizes: []int{16 << 10, 1 << 20, 30 << 20}}
}

// relayTarget is the most that a delivery may take of what vLLM's takes.
func relayTarget(size int) float64 {
	switch {
	case size < 1<<20:
		return 1.3
	case size < 8<<20:
		return 0.6
	}
	return 0.5
}

const relayNote = "a bare consumer of vLLM's (control server, reservations, memory pool and Mooncake's Transfer Engine from the wheel; no model), TCP over loopback; " +
	"reserve, write, acknowledgement and complete; vLLM is its control client, the copy into its registered memory and its Transfer Engine, one after the other; " +
	"median of the rounds' medians; "

// Run measures all sizes.
func (b Relay) Run(ctx context.Context) (rep Report, err error) {
	rep = Report{Name: "relay", Note: relayNote + Machine()}
	if b.Python == "" {
		for _, size := range b.Sizes {
			row := Missing(sizeName(size), "p50 us", "vLLM's consumer is not installed: run 'make peers'")
			row.Peer = peerVLLM
			rep.Rows = append(rep.Rows, row)
		}
		return rep, nil
	}
	p := newProgress(b.Progress)
	defer p.end()
	p.step("start of vLLM's consumer and producer")
	rig, err := b.start(ctx)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, rig.stop()) }()
	for _, size := range b.Sizes {
		p.step("%s", sizeName(size))
		ours := rig.ours(ctx, size)
		theirs := &way{name: peerVLLM, timed: func() (float64, error) {
			a, err := rig.producer.ask(peerAsk{Op: "push", Rows: rowsOf(size)})
			return a.US, err
		}}
		if err := b.Rounds.measure(ctx, ours, theirs); err != nil {
			return rep, err
		}
		rep.Rows = append(rep.Rows, Against(sizeName(size), "p50 us", ours.median(), peerVLLM, theirs.median(), relayTarget(size)))
	}
	return rep, nil
}

// relayRig is the consumer and both producers.
type relayRig struct {
	dir      string
	address  string
	consumer *child
	producer *peer
	memory   *arena.Arena
	client   *consumer.Client
	values   *arena.Buf
	names    int
}

// start brings all of it up.
func (b Relay) start(ctx context.Context) (r *relayRig, err error) {
	r = &relayRig{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	if r.dir, err = os.MkdirTemp("", "afterimage-bench-"); err != nil {
		return r, err
	}
	largest := 0
	for _, size := range b.Sizes {
		largest = max(largest, size)
	}
	if err = r.startPeers(ctx, b, largest); err != nil {
		return r, err
	}
	if err = r.fill(largest); err != nil {
		return r, err
	}
	r.client = consumer.New(consumer.Config{Logger: quietLog})
	return r, nil
}

// startPeers starts vLLM's consumer, and its producer that delivers there, for payloads of at most largest bytes.
func (r *relayRig) startPeers(ctx context.Context, b Relay, largest int) error {
	script := filepath.Join(r.dir, "relaypeer.py")
	if err := os.WriteFile(script, relayScript, 0o600); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	env := vllmEnv(b.Env, b.Dir)
	r.address = "tcp://127.0.0.1:" + port
	args := []string{"-W", "ignore", script, "consumer", port, strconv.Itoa(4*largest + 64<<20)}
	if r.consumer, err = startChild("vLLM's consumer", b.Python, args, env, func(line string) bool { return line == "ready" }); err != nil {
		return err
	}
	if err = r.consumer.await(ctx); err != nil {
		return err
	}
	socket := filepath.Join(r.dir, "push.sock")
	args = []string{"-W", "ignore", script, "push", socket, r.address, strconv.Itoa(largest)}
	r.producer, err = connectPeer(ctx, "vLLM's producer", socket, b.Python, args, env)
	return err
}

// fill puts values of so many bytes into memory of ours.
func (r *relayRig) fill(bytes int) (err error) {
	if r.memory, err = arena.New(arena.Config{Name: "afterimage-bench", Bytes: int64(bytes)}); err != nil {
		return err
	}
	if r.values, err = r.memory.Reserve(bytes); err != nil {
		return err
	}
	for i, b := 0, r.values.Bytes(); i < len(b); i++ {
		b[i] = byte(i) & 0x3f
	}
	r.values.Commit()
	return nil
}

// ours delivers an embedding from the arena, under a new name each time, and takes it back.
func (r *relayRig) ours(ctx context.Context, size int) *way {
	payload := r.values.Bytes()[:size]
	var name string
	w := &way{name: "relay"}
	w.run = func() error {
		r.names++
		name = fmt.Sprintf("%032x", r.names)
		return r.client.Deliver(ctx, r.address, []consumer.Item{{
			Transfer: name, Hash: name, Rows: rowsOf(size), Cols: colsV3, DType: "bfloat16", Size: 2,
			Payload: func(context.Context) ([]byte, error) { return payload, nil },
		}})[0].Err
	}
	w.check = func(bool) error { return r.client.Abandon(ctx, r.address, []string{name}, false) }
	return w
}

// stop ends all of it.
func (r *relayRig) stop() error {
	if r.client != nil {
		r.client.Close()
	}
	if r.producer != nil {
		r.producer.stop()
	}
	if r.consumer != nil {
		r.consumer.stop()
	}
	if r.values != nil {
		r.values.Release()
	}
	var err error
	if r.memory != nil {
		err = r.memory.Close()
	}
	if r.dir != "" {
		err = errors.Join(err, os.RemoveAll(r.dir))
	}
	return err
}
