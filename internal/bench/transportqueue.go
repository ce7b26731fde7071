// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"afterimage/internal/transport"
)

// QueueBench has more transfers come at once than there is memory for.
//
// They finish in the order in which they came, but for those that are under way together. The measure of that is
// places: the transfer that came as the i-th and finished as the k-th is |i-k| places away from its own, and of
// all transfers of all runs none may be further than a tenth of their number. Shares of pairs would not do: one
// transfer that finishes last though it came first is in few of them.
type QueueBench struct {
	Transfers int
	Bytes     int // payload of each
	Room      int // transfers that there is memory for
	Runs      int
}

// run measures how long all take, and how far transfers leave the order in which they came. A run before those that
// count makes the connection.
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
	ms, worst, err := q.again(func() ([]int, error) { return q.once(ctx, from, into, recv, send) })
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d x %s through memory for %d", q.Transfers, sizeName(q.Bytes), q.Room)
	return []Row{
		Absolute(name, "p50 ms for all, none failed", Quantile(ms, 0.5), 0),
		Absolute(name, "places between coming and finishing, at most, all runs", float64(worst), maxDisplaced*float64(q.Transfers)),
	}, nil
}

// again makes all runs, and returns the milliseconds of those that count and how far a transfer was from its place, at
// most.
func (q QueueBench) again(deliver func() (places []int, err error)) (ms []float64, worst int, err error) {
	for i := range q.Runs + 1 {
		start := time.Now()
		places, err := deliver()
		if err != nil {
			return nil, 0, err
		}
		if i == 0 {
			continue
		}
		ms = append(ms, time.Since(start).Seconds()*1e3)
		worst = max(worst, displaced(places))
	}
	return ms, worst, nil
}

// displaced says how many places the transfer that left the order of arrival furthest is away from its own:
// finished are the places at which they finished, in the order in which they came.
func displaced(finished []int) (furthest int) {
	for came, at := range finished {
		furthest = max(furthest, came-at, at-came)
	}
	return furthest
}

// once delivers all objects, that come in order, and returns at which place each finished.
func (q QueueBench) once(ctx context.Context, from, into *ends, recv transport.Receiver, send transport.Sender) (places []int, err error) {
	var granted, finished atomic.Int64
	places = make([]int, q.Transfers)
	errs := make([]error, q.Transfers)
	var wg sync.WaitGroup
	for i := range q.Transfers {
		wg.Go(func() {
			tks, err := recv.Grant(ctx, []transport.Want{parcelWant(q.Bytes, i)})
			granted.Add(1)
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
		// The next one comes when this one has its memory or stands in line: only then is there an order.
		for came := 0; came <= i; runtime.Gosched() {
			waiting, err := into.gauge("afterimage_transport_grants_waiting")
			if err != nil {
				return nil, err
			}
			came = waiting + int(granted.Load())
		}
	}
	wg.Wait()
	return places, errors.Join(errs...)
}
