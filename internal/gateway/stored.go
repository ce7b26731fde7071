// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// maxStored bounds the keys that are remembered, 16 bytes each.
const maxStored = 4 << 20

// stored is what the gateway knows of the shared Store from its events. It is a hint: late, and sometimes
// wrong, so nothing depends on it but which of several Encoders is asked. Keys are kept as their sums.
type stored struct {
	mu    sync.Mutex // guards keys
	keys  map[uint64]struct{}
	gauge prometheus.Gauge
}

func newStored(r prometheus.Registerer) *stored {
	s := &stored{
		keys: map[uint64]struct{}{},
		gauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "afterimage_gateway_stored_keys", Help: "Objects that the shared Store has, as far as its events tell.",
		}),
	}
	r.MustRegister(s.gauge)
	return s
}

// follow takes events in until their stream ends.
func (s *stored) follow(events <-chan store.Event) {
	for e := range events {
		s.take(e)
	}
}

func (s *stored) take(e store.Event) {
	sum := e.Key.Sum()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case store.Resync:
		clear(s.keys)
	case store.Stored:
		if len(s.keys) < maxStored {
			s.keys[sum] = struct{}{}
		}
	case store.Removed:
		delete(s.keys, sum)
	}
	s.gauge.Set(float64(len(s.keys)))
}

// has says whether the Store is thought to have k.
func (s *stored) has(k embedding.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) == 0 {
		return false
	}
	_, ok := s.keys[k.Sum()]
	return ok
}

// watchStore follows the events of the Store until ctx ends.
func (g *Gateway) watchStore(ctx context.Context) {
	if g.cfg.Events == nil {
		return
	}
	g.background.Go(func() { // a Store that hangs holds nobody up
		if events := g.cfg.Events(ctx); events != nil {
			g.stored.follow(events)
		}
	})
}
