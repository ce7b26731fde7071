// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/media"
	"afterimage/internal/proxy"
)

type metrics struct {
	*proxy.Requests
	media     *prometheus.CounterVec // by what was sent to an Encoder
	retries   *prometheus.CounterVec // by stage
	sources   *prometheus.CounterVec // by source
	instances *prometheus.GaugeVec   // by role and state
}

func newMetrics(r prometheus.Registerer, fetched *media.Budget) *metrics {
	fetched.Register(r)
	m := &metrics{
		Requests: proxy.NewRequests(r),
		media: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_vllm_media_total",
			Help: "Media parts sent to vLLM Encoders: whole, or only the name of one that the Encoder holds.",
		}, []string{"sent"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_vllm_retries_total",
			Help: "Calls to vLLM workers made again, by the stage that failed; name is an image that an Encoder did not hold.",
		}, []string{"stage"}),
		sources: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_vllm_sources_total",
			Help: "Media parts of answered requests, by who brought them to the worker: relay from the Store, encoder.",
		}, []string{"source"}),
		instances: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "afterimage_vllm_instances", Help: "vLLM workers on the roster, by role and state.",
		}, []string{"role", "state"}),
	}
	r.MustRegister(m.media, m.retries, m.sources, m.instances)
	for _, s := range []string{"whole", "name"} {
		m.media.WithLabelValues(s)
	}
	for _, s := range []string{"relay", "encoder"} {
		m.sources.WithLabelValues(s)
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
