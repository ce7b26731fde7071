// SPDX-License-Identifier: Apache-2.0

package vllm

import "github.com/prometheus/client_golang/prometheus"

// metrics has the names of a gateway's where both count the same.
type metrics struct {
	requests  *prometheus.CounterVec // by status
	media     *prometheus.CounterVec // by what was sent to an Encoder
	retries   *prometheus.CounterVec // by stage
	cut       prometheus.Counter
	running   prometheus.Gauge
	firstByte prometheus.Histogram
	duration  prometheus.Histogram
	instances *prometheus.GaugeVec // by role and state
}

func newMetrics(r prometheus.Registerer) *metrics {
	buckets := prometheus.ExponentialBuckets(0.001, 2, 17) // 1 ms to 65 s
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_gateway_requests_total",
			Help: "Chat requests, by the status that the client saw; 499 is a client that left.",
		}, []string{"status"}),
		media: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_vllm_media_total",
			Help: "Media parts sent to vLLM Encoders: whole, or only the name of one that the Encoder holds.",
		}, []string{"sent"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_vllm_retries_total",
			Help: "Calls to vLLM workers made again, by the stage that failed; name is an image that an Encoder did not hold.",
		}, []string{"stage"}),
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
		instances: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "afterimage_vllm_instances", Help: "vLLM workers on the roster, by role and state.",
		}, []string{"role", "state"}),
	}
	r.MustRegister(m.requests, m.media, m.retries, m.cut, m.running, m.firstByte, m.duration, m.instances)
	for _, s := range []string{"whole", "name"} {
		m.media.WithLabelValues(s)
	}
	for _, s := range []string{"encode", "prefill", "decode", "name"} {
		m.retries.WithLabelValues(s)
	}
	return m
}

// roster shows s.
func (m *metrics) roster(s Status) {
	for role, of := range s.byRole() {
		m.instances.WithLabelValues(string(role), "live").Set(float64(len(of.Live)))
		m.instances.WithLabelValues(string(role), "evicted").Set(float64(len(of.Evicted)))
	}
}
