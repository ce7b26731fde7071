// SPDX-License-Identifier: Apache-2.0

package media

import "github.com/prometheus/client_golang/prometheus"

// revisitMetrics count fetches.
type revisitMetrics struct {
	fetches *prometheus.CounterVec // by result
	bytes   *prometheus.CounterVec // by result
}

func newRevisitMetrics() revisitMetrics {
	m := revisitMetrics{
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_gateway_fetches_total",
			Help: "Media got from URLs, by how: fetched, revalidated (the server said that they are unchanged), refetched (revalidated before, and transferred after all for an Encoder).",
		}, []string{"result"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_gateway_fetch_bytes_total",
			Help: "Bytes of media got from URLs, by how: those revalidated, less those refetched, were not transferred.",
		}, []string{"result"}),
	}
	for _, how := range []How{Fetched, Revalidated, Refetched} {
		m.fetches.WithLabelValues(string(how))
		m.bytes.WithLabelValues(string(how))
	}
	return m
}

func (m *revisitMetrics) count(how How, bytes int) {
	m.fetches.WithLabelValues(string(how)).Inc()
	m.bytes.WithLabelValues(string(how)).Add(float64(bytes))
}

// Register exports what r does and holds, limits beside what is used.
func (r *Revisits) Register(reg prometheus.Registerer) {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	reg.MustRegister(r.metrics.fetches, r.metrics.bytes,
		gauge("afterimage_gateway_revisit_entries", "URLs whose latest answer is remembered.", func() float64 { n, _ := r.stats(); return float64(n) }),
		gauge("afterimage_gateway_revisit_limit_entries", "Most of them; those not used for longest make way.", func() float64 { return float64(r.maxEntries) }),
		gauge("afterimage_gateway_revisit_bytes", "Bytes of files that are held with them.", func() float64 { _, n := r.stats(); return float64(n) }),
		gauge("afterimage_gateway_revisit_limit_bytes", "Most of those.", func() float64 { return float64(r.maxBytes) }),
	)
}
