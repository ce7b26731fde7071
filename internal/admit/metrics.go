// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxLabels bounds the tenants that have series of their own. Those that come later share one.
const (
	maxLabels   = 200
	otherLabel  = "(other)"
	nobodyLabel = "" // without keys
)

// Outcomes of requests, besides the limits of tenants.
const (
	outcomeAdmitted   = "admitted"
	outcomeQueueFull  = "queue_full"
	outcomeQueueBytes = "queue_bytes"
	outcomeQueueWait  = "queue_wait"
	outcomeLeft       = "left"
)

func outcomeOf(reason error) string {
	switch reason {
	case errWaited:
		return outcomeQueueWait
	case errBytes:
		return outcomeQueueBytes
	}
	return outcomeQueueFull
}

type metrics struct {
	requests     *prometheus.CounterVec // by tenant and outcome
	unauthorized prometheus.Counter
	wait         *prometheus.HistogramVec // by kind

	mu     sync.Mutex // guards labels
	labels map[string]bool
}

func newMetrics(d *Door) *metrics {
	m := &metrics{
		labels: map[string]bool{nobodyLabel: true},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_gateway_tenant_requests_total",
			Help: "Requests of each tenant, by what became of them at the door: admitted, or the limit or queue that refused them.",
		}, []string{"tenant", "outcome"}),
		unauthorized: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_gateway_unauthorized_total", Help: "Requests refused for want of a key, or of the right one.",
		}),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "afterimage_gateway_queue_seconds", Help: "Time that a request waited for its turn, where places are limited.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 17),
		}, []string{"kind"}),
	}
	for _, outcome := range []string{outcomeQueueFull, outcomeQueueBytes, outcomeQueueWait, outcomeLeft} {
		m.requests.WithLabelValues(nobodyLabel, outcome)
	}
	for _, kind := range kindNames {
		m.wait.WithLabelValues(kind)
	}
	if d.cfg.Registry != nil {
		d.cfg.Registry.MustRegister(m.requests, m.unauthorized, m.wait, &places{d})
	}
	return m
}

func (m *metrics) admitted(tenant string) { m.count(tenant, outcomeAdmitted) }

// refused counts a request that was not let in.
func (m *metrics) refused(tenant, outcome string) { m.count(tenant, outcome) }

func (m *metrics) count(tenant, outcome string) {
	m.requests.WithLabelValues(m.label(tenant), outcome).Inc()
}

// label returns the name under which a tenant is counted.
func (m *metrics) label(tenant string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.labels[tenant] {
		return tenant
	}
	if len(m.labels) >= maxLabels {
		return otherLabel
	}
	m.labels[tenant] = true
	return tenant
}

func (m *metrics) waited(k Kind, d time.Duration) {
	m.wait.WithLabelValues(kindNames[k]).Observe(d.Seconds())
}

// places shows the queues, limits next to what is used.
type places struct{ d *Door }

var (
	admittedDesc = prometheus.NewDesc("afterimage_gateway_admitted_requests", "Requests that take up a place, where places are limited.", []string{"kind"}, nil)
	limitDesc    = prometheus.NewDesc("afterimage_gateway_admitted_limit_requests", "Places for requests.", []string{"kind"}, nil)
	queuedDesc   = prometheus.NewDesc("afterimage_gateway_queued_requests", "Requests that wait for a place.", []string{"kind"}, nil)
	heldDesc     = prometheus.NewDesc("afterimage_gateway_queued_bytes", "Bytes of the bodies of requests that wait for a place.", []string{"kind"}, nil)
	holdDesc     = prometheus.NewDesc("afterimage_gateway_queued_limit_bytes", "Most bytes of them, where they are limited.", []string{"kind"}, nil)
	roomDesc     = prometheus.NewDesc("afterimage_gateway_queued_limit_requests", "Requests that may wait for a place.", []string{"kind"}, nil)
)

// Describe implements prometheus.Collector.
func (p *places) Describe(ch chan<- *prometheus.Desc) {
	ch <- admittedDesc
	ch <- limitDesc
	ch <- queuedDesc
	ch <- roomDesc
	ch <- heldDesc
	ch <- holdDesc
}

// Collect implements prometheus.Collector.
func (p *places) Collect(ch chan<- prometheus.Metric) {
	for k, q := range p.d.queues {
		if q == nil {
			continue
		}
		taken, waiting := q.stats()
		gauge := func(d *prometheus.Desc, v int64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), kindNames[k])
		}
		gauge(admittedDesc, int64(taken))
		gauge(limitDesc, int64(q.line.places))
		gauge(queuedDesc, int64(waiting.requests))
		gauge(roomDesc, int64(q.line.room.requests))
		gauge(heldDesc, waiting.bytes)
		if most := q.line.room.bytes; most > 0 {
			gauge(holdDesc, most)
		}
	}
}
