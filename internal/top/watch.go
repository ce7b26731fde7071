// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"sync"
	"time"
)

// Times of a watch.
const (
	again        = time.Second // after a connection that broke
	metricsEvery = 2 * time.Second
	metricsLimit = time.Second // for an answer
)

// Watch calls show with a Snapshot at once, on every change, and every time that tick or resized fires, until ctx
// ends or show fails. The gateway may go and come back meanwhile; it has to be there at first, or Watch fails.
func (s Source) Watch(ctx context.Context, resized <-chan struct{}, every time.Duration, show func(Snapshot) error) error {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	events, lost, series := make(chan Event), make(chan error), make(chan Series)
	wg.Go(func() { s.follow(ctx, events, lost) })
	wg.Go(func() { s.measure(ctx, series) })
	v, known := NewViewer(s.URL), false
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			v.Add(e, time.Now())
			known = true
		case err := <-lost:
			if !known {
				return err
			}
			v.Lose("no connection, trying again (" + err.Error() + ")")
		case m := <-series:
			v.Measure(m)
			continue // it is shown with the next tick
		case <-resized:
		case <-tick.C:
		}
		if !known {
			continue
		}
		if err := show(v.Snapshot(time.Now())); err != nil {
			return err
		}
	}
}

// follow connects again whenever a connection ends.
func (s Source) follow(ctx context.Context, events chan<- Event, lost chan<- error) {
	for {
		err := s.Follow(ctx, func(e Event) {
			select {
			case events <- e:
			case <-ctx.Done():
			}
		})
		select {
		case lost <- err:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
	}
}

// measure reads the metrics now and then; what cannot be read is left out.
func (s Source) measure(ctx context.Context, series chan<- Series) {
	tick := time.NewTicker(metricsEvery)
	defer tick.Stop()
	for {
		look, cancel := context.WithTimeout(ctx, metricsLimit)
		m, err := s.Metrics(look)
		cancel()
		if err == nil {
			select {
			case series <- m:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
