// SPDX-License-Identifier: Apache-2.0

package gateway

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	requests  *prometheus.CounterVec // by status
	images    prometheus.Counter
	items     *prometheus.CounterVec // by source
	repairs   prometheus.Counter
	joined    prometheus.Counter
	cut       prometheus.Counter
	running   prometheus.Gauge
	firstByte prometheus.Histogram
	duration  prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	buckets := prometheus.ExponentialBuckets(0.001, 2, 17) // 1 ms to 65 s
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_gateway_requests_total",
			Help: "Chat requests, by the status that the client saw; 499 is a client that left.",
		}, []string{"status"}),
		images: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_gateway_images_total", Help: "Media parts accepted.",
		}),
		items: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_gateway_items_total",
			Help: "Distinct images delivered, by where the embedding came from.",
		}, []string{"source"}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_gateway_repairs_total", Help: "Attempts repeated because a worker failed or lacked an item.",
		}),
		joined: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_gateway_joined_total", Help: "Images that joined the encode of another request, in flight at the same time.",
		}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_gateway_cut_streams_total", Help: "Answers that ended in an error frame.",
		}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "afterimage_gateway_requests_running", Help: "Chat requests in work.",
		}),
		firstByte: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "afterimage_gateway_first_byte_seconds", Help: "Time to the worker's first byte.", Buckets: buckets,
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "afterimage_gateway_request_seconds", Help: "Time of a whole request.", Buckets: buckets,
		}),
	}
	r.MustRegister(m.requests, m.images, m.items, m.repairs, m.joined, m.cut, m.running, m.firstByte, m.duration)
	for _, s := range []string{"local", "store", "encoded", "resident"} {
		m.items.WithLabelValues(s)
	}
	return m
}
