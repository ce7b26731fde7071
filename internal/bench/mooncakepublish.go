// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/mooncake"
)

// What a PUT that takes long may add to an exists call.
const maxDelayUS = 1000

// vllmPut is the target of PUTs against vLLM's Store client, by size.
func vllmPut(size int) float64 {
	if size < nodeFrom {
		return 0.7
	}
	return 0.35
}

// Publish measures what PUTs into a Mooncake cluster cost.
func (b MooncakeBench) Publish(ctx context.Context) (Report, error) {
	return b.measure(ctx, "publish", (*mooncakeRun).puts, func(rig *mooncakeRig, p *progress) ([]Row, error) {
		p.step("exists beside a slow PUT")
		x := b.run(rig, 1, slices.Max(b.Sizes))
		err := x.delay(ctx)
		return x.rows, err
	})
}

// puts has everybody store the objects, under a new name each time.
func (x *mooncakeRun) puts(ctx context.Context) (ratio float64, err error) {
	if x.o, err = x.make("put"); err != nil {
		return 0, err
	}
	defer x.o.release()
	// Beyond the first of each client, which came before.
	registrations := func() (n uint64) {
		for _, c := range []*mooncake.Client{x.local, x.remote} {
			st := c.Stats()
			n += st.Reconnects + st.Rotations
		}
		return n
	}
	before := registrations()
	local, remote := x.putWay(ctx, "PUT", x.local), x.putWay(ctx, "PUT to another node", x.remote)
	vllm, dummy, python := x.putBy(ctx, peerVLLM), x.putBy(ctx, peerDummy), x.putBy(ctx, peerPython)
	if err := x.rounds.measure(ctx, present(local, vllm, dummy, remote, python)...); err != nil {
		return 0, err
	}
	x.compare("PUT", local, peerVLLM, vllm, vllmPut(x.size))
	x.compare("PUT", local, peerDummy, dummy, maxDummyCell)
	x.compare("PUT to another node", remote, peerPython, python, 0)
	none := registrations() == before
	x.rows = append(x.rows, Row{Case: x.name + " PUT", Metric: "registrations of all", Value: float64(registrations() - before), OK: &none})
	if dummy == nil {
		return math.NaN(), nil
	}
	return local.median() / dummy.median(), nil
}

// fresh returns names for the objects of one PUT.
func (x *mooncakeRun) fresh(who string, count *int) (ids []string, keys []embedding.Key) {
	*count++
	for _, id := range x.ids {
		id = fmt.Sprintf("%s/%s/%d", id, who, *count)
		ids, keys = append(ids, id), append(keys, benchNamespace.Key(embedding.Identifier(id)))
	}
	return ids, keys
}

// putWay stores the objects through s and takes them away again.
func (x *mooncakeRun) putWay(ctx context.Context, name string, s *mooncake.Client) *way {
	count := 0
	_, keys := x.fresh(name, &count)
	w := &way{name: name}
	w.run = func() error {
		puts := make([]store.Putting, len(keys))
		for i, key := range keys {
			puts[i] = store.Putting{Key: key, Buf: x.o.bufs[i]}
		}
		return errors.Join(s.PutAll(ctx, puts)...)
	}
	read := false
	w.check = func(bool) error {
		var err error
		if !read { // once: what was read is leased, and stays
			err, read = x.same(ctx, keys), true
		} else {
			err = s.Remove(ctx, keys)
		}
		_, keys = x.fresh(name, &count)
		return err
	}
	return w
}

// same checks that the Store holds the objects under keys, byte by byte.
func (x *mooncakeRun) same(ctx context.Context, keys []embedding.Key) error {
	return x.verify(x.local.Get(ctx, x.wants(keys)), true)
}

// putBy has a peer store the same objects; nil when it does not run.
func (x *mooncakeRun) putBy(ctx context.Context, kind string) *way {
	p := x.peers[kind]
	if p == nil {
		return nil
	}
	count := 0
	ids, keys := x.fresh(kind, &count)
	w := &way{name: kind + " PUT"}
	w.timed = func() (float64, error) {
		a, err := p.ask(peerAsk{Op: "put", IDs: ids, Rows: rowsOf(x.size), Cols: colsV3})
		return a.US, err
	}
	w.check = func(all bool) error {
		var err error
		if all {
			err = x.same(ctx, keys)
		}
		_, dropped := p.ask(peerAsk{Op: "drop", IDs: ids})
		ids, keys = x.fresh(kind, &count)
		return errors.Join(err, dropped)
	}
	return w
}

// delay compares exists calls beside a PUT that takes long with those beside none, through one client. The PUT
// is slow since its storage node is stopped in the middle of it. mooncake_client polls for its end, which takes a
// whole core: on two cores, the worst of the exists calls has waited for that, too.
func (x *mooncakeRun) delay(ctx context.Context) (err error) {
	const asked = 40 // calls of a round, 4 to 10 ms
	if x.o, err = x.make("slow"); err != nil {
		return err
	}
	defer x.o.release()
	var typical, more []float64
	for i := range x.rounds.Rounds {
		idle, err := x.ask(ctx, asked)
		if err != nil {
			return err
		}
		beside, err := x.besideSlowPut(ctx, i, func() ([]float64, error) { return x.ask(ctx, asked) })
		if err != nil {
			return err
		}
		more = append(more, slices.Max(beside)-slices.Max(idle))
		typical = append(typical, Quantile(beside, 0.5))
	}
	x.rows = append(x.rows,
		Absolute("exists beside a slow PUT", "p50 us", Quantile(typical, 0.5), 0),
		Absolute(fmt.Sprintf("exists beside a slow PUT, worst of %d", asked), "us more than without it", Quantile(more, 0.5), maxDelayUS))
	return nil
}

// ask makes exists calls and returns what each took, in microseconds.
func (x *mooncakeRun) ask(ctx context.Context, calls int) (us []float64, err error) {
	key := []embedding.Key{x.o.items[0].Key + "/absent"}
	for range calls {
		start := time.Now()
		if _, err := x.remote.Exists(ctx, key); err != nil {
			return nil, err
		}
		us = append(us, float64(time.Since(start))/float64(time.Microsecond))
	}
	return us, nil
}

// besideSlowPut runs do while a PUT runs, and lets that end.
func (x *mooncakeRun) besideSlowPut(ctx context.Context, round int, do func() ([]float64, error)) ([]float64, error) {
	key := x.o.items[0].Key + embedding.Key(fmt.Sprintf("/%d", round))
	if err := freeze(ctx, x.node.cmd.Process); err != nil {
		return nil, errors.Join(err, x.node.cmd.Process.Signal(syscall.SIGCONT))
	}
	stored := make(chan error, 1)
	go func() { stored <- x.remote.Put(ctx, key, x.o.bufs[0], store.PutOptions{}) }()
	err := pause(ctx, 20*time.Millisecond) // until it is on its way
	var us []float64
	if err == nil {
		us, err = do()
	}
	if err == nil && len(stored) > 0 {
		err = errors.New("bench: a PUT ended while its storage node stood still")
	}
	err = errors.Join(err, x.node.cmd.Process.Signal(syscall.SIGCONT), <-stored)
	if err == nil {
		err = x.remote.Remove(ctx, []embedding.Key{key})
	}
	return us, err
}
