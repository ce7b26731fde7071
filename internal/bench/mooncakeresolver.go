// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/resolve"
	"afterimage/internal/store"
	"afterimage/internal/store/mooncake"
)

// Targets of bench resolver with Mooncake: the most that a hit may take of what the peer takes.
const (
	maxDummyCell   = 1.3 // one case, against Mooncake's dummy client
	maxDummyMean   = 1.1 // all cases, geometric mean
	maxNodeRatio   = 1.2 // objects on another node, from nodeFrom bytes on, against Mooncake's Python client
	maxNodeRatio4  = 1.6 // several objects of nodeFrom bytes
	maxNodeExtraUS = 350 // smaller objects on another node: what the hop to mooncake_client may add
	maxMissesUS    = 250 // four misses
	nodeFrom       = 1 << 20
	missCount      = 4
)

// vllmHit is the target of a full hit of four objects against vLLM's Store client, by size.
func vllmHit(size, n int) float64 {
	switch {
	case n != 4:
		return 0
	case size < nodeFrom:
		return 0.65
	}
	return 0.2
}

// Resolver measures what a Resolver costs on a Mooncake cluster.
func (b MooncakeBench) Resolver(ctx context.Context) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // spares the resolver its timer
	defer cancel()
	return b.measure(ctx, "resolver", (*mooncakeRun).hits, func(rig *mooncakeRig, p *progress) ([]Row, error) {
		p.step("misses")
		x := b.run(rig, missCount, b.Sizes[0])
		err := x.misses(ctx)
		return x.rows, err
	})
}

// hits stores the objects once and has everybody read them. It returns the ratio to the dummy client, NaN
// without one.
func (x *mooncakeRun) hits(ctx context.Context) (ratio float64, err error) {
	if x.o, err = x.make("hit"); err != nil {
		return 0, err
	}
	defer x.o.release()
	for i, buf := range x.o.bufs {
		if err := x.local.Put(ctx, x.o.items[i].Key, buf, store.PutOptions{}); err != nil {
			return 0, err
		}
	}
	local, err := x.resolveWay(ctx, "hit", x.local)
	if err != nil {
		return 0, err
	}
	remote := x.getWay(ctx, "GET from another node", x.remote)
	vllm, dummy, python := x.readBy(peerVLLM, "hit"), x.readBy(peerDummy, "hit"), x.readBy(peerPython, "get")
	if err := x.rounds.measure(ctx, present(local, vllm, dummy, remote, python)...); err != nil {
		return 0, err
	}
	x.compare("full hit", local, peerVLLM, vllm, vllmHit(x.size, x.n))
	x.compare("full hit", local, peerDummy, dummy, maxDummyCell)
	x.nodeRow(remote, python)
	if dummy == nil {
		return math.NaN(), nil
	}
	return local.median() / dummy.median(), nil
}

// nodeRow compares reads from another node. Small objects pay for one hop more, which has a limit of its own.
func (x *mooncakeRun) nodeRow(remote, python *way) {
	target := maxNodeRatio
	if x.size < nodeFrom {
		target = 0
	} else if x.size == nodeFrom && x.n > 1 {
		target = maxNodeRatio4
	}
	x.compare("GET from another node", remote, peerPython, python, target)
	if x.size < nodeFrom && python != nil {
		x.rows = append(x.rows, Absolute(x.name+" GET from another node", "us more than "+peerPython, remote.median()-python.median(), maxNodeExtraUS))
	}
}

// resolveWay resolves the objects through s.
func (x *mooncakeRun) resolveWay(ctx context.Context, name string, s *mooncake.Client) (*way, error) {
	r, err := resolve.New(resolve.Config{Store: s, Protocol: embedding.V3, ReadBufferBytes: 1 << 30, Logger: quietLog})
	if err != nil {
		return nil, err
	}
	results := make([]resolve.Result, x.n)
	w := &way{name: name}
	w.run = func() error { r.ResolveOr(ctx, x.o.items, results, nil); return nil }
	w.check = func(all bool) error {
		gots := make([]store.Got, x.n)
		for i, r := range results {
			if gots[i] = (store.Got{Buf: r.Buf, Err: r.Err}); r.Buf == nil {
				gots[i].Err = fmt.Errorf("object %d: %s: %w", i, r.Reason, r.Err)
			}
		}
		return x.verify(gots, all)
	}
	return w, nil
}

// getWay reads the objects by one call to s.
func (x *mooncakeRun) getWay(ctx context.Context, name string, s *mooncake.Client) *way {
	wants := x.wants(x.o.keys())
	var gots []store.Got
	w := &way{name: name, run: func() error { gots = s.Get(ctx, wants); return nil }}
	w.check = func(all bool) error { return x.verify(gots, all) }
	return w
}

// wants asks for the objects under keys.
func (x *mooncakeRun) wants(keys []embedding.Key) []store.Want {
	wants := make([]store.Want, len(keys))
	for i, k := range keys {
		wants[i] = store.Want{Key: k, Bytes: x.o.bufs[i].Len(), Exact: true}
	}
	return wants
}

// verify checks that the objects were read, byte by byte when all, and gives them back.
func (x *mooncakeRun) verify(gots []store.Got, all bool) (err error) {
	for i, g := range gots {
		if g.Err != nil {
			err = errors.Join(err, g.Err)
			continue
		}
		if all && !bytes.Equal(g.Buf.Bytes(), x.o.bufs[i].Bytes()) {
			err = errors.Join(err, fmt.Errorf("object %d: other bytes than were stored", i))
		}
		g.Buf.Release()
	}
	return err
}

// readBy has a peer read the same objects; nil when it does not run.
func (x *mooncakeRun) readBy(kind, op string) *way {
	p := x.peers[kind]
	if p == nil {
		return nil
	}
	w := &way{name: kind + " " + op}
	w.timed = func() (float64, error) {
		a, err := p.ask(peerAsk{Op: op, IDs: x.ids, Rows: rowsOf(x.size), Cols: colsV3})
		return a.US, err
	}
	w.check = func(all bool) error {
		if !all {
			return nil
		}
		a, err := p.ask(peerAsk{Op: "sums"})
		if err == nil && fmt.Sprint(a.Sums) != fmt.Sprint(x.sums) {
			err = errors.New("other bytes than were stored")
		}
		return err
	}
	return w
}

// misses measures questions about what is not there.
func (x *mooncakeRun) misses(ctx context.Context) (err error) {
	if x.o, err = x.make("absent"); err != nil {
		return err
	}
	defer x.o.release()
	r, err := resolve.New(resolve.Config{Store: x.local, Protocol: embedding.V3, Logger: quietLog})
	if err != nil {
		return err
	}
	results := make([]resolve.Result, x.n)
	ours := &way{name: "miss", run: func() error { r.ResolveOr(ctx, x.o.items, results, nil); return nil }}
	ours.check = func(bool) error {
		for i := range results {
			if results[i].Reason != resolve.Absent {
				return fmt.Errorf("object %d: %s: %w", i, results[i].Reason, results[i].Err)
			}
		}
		return nil
	}
	var vllm *way
	if p := x.peers[peerVLLM]; p != nil {
		vllm = &way{name: "vllm miss", timed: func() (float64, error) {
			a, err := p.ask(peerAsk{Op: "miss", IDs: x.ids, Rows: rowsOf(x.size), Cols: colsV3})
			return a.US, err
		}}
	}
	x.rounds.Samples *= 5
	if err := x.rounds.measure(ctx, present(ours, vllm)...); err != nil {
		return err
	}
	x.rows = append(x.rows, Absolute(fmt.Sprintf("%d misses", x.n), "p50 us", ours.median(), maxMissesUS))
	x.name = fmt.Sprint(x.n)
	x.compare("misses", ours, peerVLLM, vllm, 0)
	return nil
}
