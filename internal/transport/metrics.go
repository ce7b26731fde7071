// SPDX-License-Identifier: Apache-2.0

package transport

import "github.com/prometheus/client_golang/prometheus"

// The values of the label "side".
const (
	sideReceiver = "receiver"
	sideSender   = "sender"
)

// Metrics counts what a Receiver and a Sender do. One Metrics may serve both; the label "side" tells
// them apart.
type Metrics struct {
	transfers *prometheus.CounterVec // side, result, reason
	bytes     *prometheus.CounterVec // side; payload bytes of completed transfers
	dropped   *prometheus.CounterVec // side, reason; frames that were read and thrown away
	inFlight  *prometheus.GaugeVec   // side; receiver: granted and unclaimed; sender: Sends that run
	conns     *prometheus.GaugeVec   // side; open connections past hello
	grantWait prometheus.Histogram   // seconds that a request waited for memory
}

// NewMetrics registers with reg, which may be nil for metrics that nobody reads.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "afterimage_transport_" + name, Help: help}, labels)
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "afterimage_transport_" + name, Help: help}, []string{"side"})
	}
	m := &Metrics{
		transfers: counter("transfers_total", "Transfers that ended, by result and reason.", "side", "result", "reason"),
		bytes:     counter("bytes_total", "Object bytes of completed transfers.", "side"),
		dropped:   counter("dropped_frames_total", "Frames dropped, by reason.", "side", "reason"),
		inFlight:  gauge("in_flight", "Transfers granted and not yet claimed (receiver), sends that run (sender)."),
		conns:     gauge("connections", "Open data connections."),
		grantWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "afterimage_transport_grant_wait_seconds",
			Help:    "Time that a request waited for memory for its objects.",
			Buckets: []float64{1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10},
		}),
	}
	if reg != nil {
		reg.MustRegister(m.transfers, m.bytes, m.dropped, m.inFlight, m.conns, m.grantWait)
	}
	return m
}
