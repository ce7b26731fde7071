// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	items   *prometheus.CounterVec // by result
	bytes   prometheus.Counter
	seconds prometheus.Histogram
	sums    prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		items: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_relay_items_total",
			Help: "Images of requests by what the relay did: written, followed and resident are at the vLLM worker without an Encoder, all others went to Encoders.",
		}, []string{"result"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_relay_written_bytes_total", Help: "Bytes of embeddings that the relay wrote into vLLM workers, once per worker.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "afterimage_relay_seconds", Help: "Time that the relay took per request, Store and workers together.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		sums: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_relay_sum_failures_total", Help: "Sums of objects that could not be stored, and corrupt objects that could not be removed.",
		}),
	}
	r.MustRegister(m.items, m.bytes, m.seconds, m.sums)
	for _, x := range results {
		m.items.WithLabelValues(string(x))
	}
	return m
}
