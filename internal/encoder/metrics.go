// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/engine"
	"afterimage/internal/media"
)

// metrics are the role's own series; the packages below it have theirs.
type metrics struct {
	items   *prometheus.CounterVec // by source: local, store, encoded, joined, failed
	encodes prometheus.Counter     // runs of the engine
	joined  prometheus.Counter     // items that shared another's run
	refused prometheus.Counter     // images refused because the queue was full
	queue   prometheus.Histogram
	encode  prometheus.Histogram
	deliver *prometheus.CounterVec // by result
}

func newMetrics(r prometheus.Registerer, b engine.Backend) *metrics {
	engine.RegisterBackend(r, b)
	buckets := prometheus.ExponentialBuckets(0.001, 2, 14) // 1 ms to 8 s
	m := &metrics{
		items: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_encoder_items_total",
			Help: "Images answered, by where the embedding came from.",
		}, []string{"source"}),
		encodes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_encoder_encodes_total",
			Help: "Images that the engine encoded.",
		}),
		joined: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_encoder_joined_total",
			Help: "Images that shared the encode of an equal one in flight.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_encoder_refused_total",
			Help: "Images refused because the queue before the engine was full.",
		}),
		queue: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "afterimage_encoder_queue_seconds",
			Help: "Time an image waited for the engine.", Buckets: buckets,
		}),
		encode: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "afterimage_encoder_encode_seconds",
			Help: "Time the engine took for one image, decoding of the file left out.", Buckets: buckets,
		}),
		deliver: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_encoder_deliveries_total",
			Help: "Deliveries to Prefill workers, by result.",
		}, []string{"result"}),
	}
	r.MustRegister(m.items, m.encodes, m.joined, m.refused, m.queue, m.encode, m.deliver)
	for _, s := range []string{"local", "store", "encoded", "joined", "failed"} {
		m.items.WithLabelValues(s)
	}
	for _, s := range []string{"confirmed", "failed"} {
		m.deliver.WithLabelValues(s)
	}
	return m
}

// registerBounds shows what the role holds, limits next to usage.
func (e *Encoder) registerBounds(r prometheus.Registerer) {
	gauge := func(name, help string, f func() int64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "afterimage_" + name, Help: help}, func() float64 { return float64(f()) }))
	}
	gauge("encoder_waiting_images", "Images that wait for the engine.", e.waiting.Load)
	gauge("encoder_waiting_limit_images", "Most images that wait; more are refused.", func() int64 { return int64(e.cfg.MaxQueue) })
	gauge("media_decode_bytes", "Bytes of memory that decoders hold.", media.DecodingBytes)
	gauge("media_decode_limit_bytes", "Most bytes of memory that decoders hold; pictures wait for their share.",
		func() int64 { return e.cfg.Limits.DecodeBudgetBytes })
	if e.cfg.Arena != nil {
		r.MustRegister(e.cfg.Arena.Collector())
	}
	if e.cfg.Cache != nil {
		r.MustRegister(e.cfg.Cache.Collector())
	}
}
