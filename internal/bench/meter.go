// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"sync"
	"time"

	"afterimage/internal/load"
)

// meter tells a person how a load is going.
type meter struct {
	p     *progress
	total int

	mu     sync.Mutex // guards the fields below
	ended  int
	failed int
	ttft   load.Histogram
}

func newMeter(p *progress, total int) *meter { return &meter{p: p, total: total} }

// done counts a request that has ended.
func (m *meter) done(r *load.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended++
	if !r.OK() {
		m.failed++
		return
	}
	m.ttft.Add(time.Duration(r.TTFTMS * float64(time.Millisecond)))
}

// How often the state of a load is told: on a terminal, and where lines stay.
const (
	tellEvery     = time.Second
	tellEveryLine = 10 * time.Second
)

// start tells how it goes until the returned function is called.
func (m *meter) start() (stop func()) {
	every := tellEveryLine
	if m.p.terminal {
		every = tellEvery
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		begun := time.Now()
		for {
			select {
			case <-tick.C:
				m.p.step("%s", m.line(time.Since(begun)))
			case <-quit:
				return
			}
		}
	})
	return func() {
		close(quit)
		wg.Wait()
	}
}

func (m *meter) line(since time.Duration) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("%v: %d of %d answered (%.2f/s), %d failed, TTFT p50 %.0f ms, p99 %.0f ms", since.Round(time.Second), m.ended, m.total,
		float64(m.ended)/since.Seconds(), m.failed, m.ttft.Quantile(0.5), m.ttft.Quantile(0.99))
}
