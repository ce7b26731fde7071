// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"afterimage/internal/transport"
)

// QueueBench has more transfers come at once than there is memory for.
type QueueBench struct {
	Transfers int
	Bytes     int // payload of each
	Room      int // transfers that there is memory for
	Runs      int
}

// run measures how long all take, and how far transfers leave the order in which they came.
func (q QueueBench) run(ctx context.Context) (rows []Row, err error) {
	w := parcelWant(q.Bytes, 0)
	from, err := newEnds(int64(q.Transfers * (w.Bytes + 64)))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	into, err := newEnds(int64(q.Room * (w.Bytes + 63) / 64 * 64))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, into.close()) }()
	send, err := from.sender(false)
	if err != nil {
		return nil, err
	}
	recv, err := into.receiver()
	if err != nil {
		return nil, err
	}
	for i := range q.Transfers {
		if _, err := from.parcel(parcelWant(q.Bytes, i)); err != nil {
			return nil, err
		}
	}
	var ms, swapped []float64
	worst := 0
	for range q.Runs {
		start := time.Now()
		places, err := q.once(ctx, from, recv, send)
		if err != nil {
			return nil, err
		}
		ms = append(ms, time.Since(start).Seconds()*1e3)
		pairs, moved := disorder(places)
		swapped, worst = append(swapped, pairs), max(worst, moved)
	}
	name := fmt.Sprintf("%d x %s through memory for %d", q.Transfers, sizeName(q.Bytes), q.Room)
	return []Row{
		Absolute(name, "p50 ms for all, none failed", Quantile(ms, 0.5), 0),
		Absolute(name, "pairs that changed their order, of all, worst run", slices.Max(swapped), maxOvertaking),
		Absolute(name, "places that one moved, most of all runs", float64(worst), 0),
	}, nil
}

// disorder says how far places, which would be 0, 1, 2 ... in order, are not: the share of pairs that
// changed their order, and by how many places the one that moved furthest did.
func disorder(places []int) (pairs float64, furthest int) {
	swapped := 0
	for i, at := range places {
		furthest = max(furthest, i-at, at-i)
		for _, later := range places[i+1:] {
			if later < at {
				swapped++
			}
		}
	}
	n := len(places)
	return float64(2*swapped) / float64(n*(n-1)), furthest
}

// once delivers all objects, that come in order, and returns at which place each finished.
func (q QueueBench) once(ctx context.Context, from *ends, recv transport.Receiver, send transport.Sender) (places []int, err error) {
	var finished atomic.Int64
	places = make([]int, q.Transfers)
	errs := make([]error, q.Transfers)
	var wg sync.WaitGroup
	for i := range q.Transfers {
		came := make(chan struct{})
		wg.Go(func() {
			close(came) // the next one comes when this one asks
			tks, err := recv.Grant(ctx, []transport.Want{parcelWant(q.Bytes, i)})
			if err == nil {
				err = send.Send(ctx, tks[0].Grant(), from.bufs[i])
			}
			if err != nil {
				errs[i] = err
				return
			}
			got, _, err := tks[0].Wait(ctx)
			places[i], errs[i] = int(finished.Add(1))-1, err
			if err == nil {
				got.Release()
			}
		})
		<-came
	}
	wg.Wait()
	return places, errors.Join(errs...)
}
