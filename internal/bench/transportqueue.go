// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
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
	var ms []float64
	worst := 0
	for range q.Runs {
		start := time.Now()
		moved, err := q.once(ctx, from, recv, send)
		if err != nil {
			return nil, err
		}
		ms = append(ms, time.Since(start).Seconds()*1e3)
		worst = max(worst, moved)
	}
	name := fmt.Sprintf("%d x %s through memory for %d", q.Transfers, sizeName(q.Bytes), q.Room)
	return []Row{
		Absolute(name, "p50 ms for all, none failed", Quantile(ms, 0.5), 0),
		Absolute(name, "furthest out of order, of all", float64(worst)/float64(q.Transfers), maxOvertaking),
	}, nil
}

// once delivers all objects, that came in order, and returns by how many places the one that moved
// furthest left it.
func (q QueueBench) once(ctx context.Context, from *ends, recv transport.Receiver, send transport.Sender) (worst int, err error) {
	var finished atomic.Int64
	places := make([]int, q.Transfers)
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
	for i, at := range places {
		worst = max(worst, i-at, at-i)
	}
	return worst, errors.Join(errs...)
}
