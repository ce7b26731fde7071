// SPDX-License-Identifier: Apache-2.0

package transport

import "github.com/prometheus/client_golang/prometheus"

// The values of the label "side".
const (
	sideReceiver = "receiver"
	sideSender   = "sender"
)

// The values of the label "road".
const (
	roadCopy = "copy" // through the connection
	roadLoan = "loan" // by reference, in the sender's memory
)

// Metrics counts what a Receiver and a Sender do. One Metrics may serve both; the label "side" tells
// them apart.
type Metrics struct {
	transfers *prometheus.CounterVec // side, result, reason
	bytes     *prometheus.CounterVec // side, road; payload bytes of completed transfers
	wire      *prometheus.CounterVec // side; bytes that were read from, or written to, connections
	dropped   *prometheus.CounterVec // side, reason; frames that were read and thrown away
	inFlight  *prometheus.GaugeVec   // side; receiver: granted and unclaimed; sender: Sends that run
	conns     *prometheus.GaugeVec   // side; open connections past hello
	loans     *prometheus.GaugeVec   // side; bytes on loan
	joined    prometheus.Counter     // tickets that share the room of another
	grantWait prometheus.Histogram   // seconds that a request waited for memory
	inLine    prometheus.Gauge       // requests that wait for their turn, or for memory
}

// series are those of one side, so that hot paths look up no labels.
type series struct {
	done         prometheus.Counter // transfers that went well
	copied, lent prometheus.Counter // bytes
	wire         prometheus.Counter
	inFlight     prometheus.Gauge
	loans        prometheus.Gauge
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
		bytes:     counter("bytes_total", "Object bytes of completed transfers: copied, or lent.", "side", "road"),
		wire:      counter("wire_bytes_total", "Bytes read from data connections (receiver), written to them (sender).", "side"),
		dropped:   counter("dropped_frames_total", "Frames dropped, by reason.", "side", "reason"),
		inFlight:  gauge("in_flight", "Transfers granted and not yet claimed (receiver), sends that run (sender)."),
		conns:     gauge("connections", "Open data connections."),
		loans:     gauge("loan_bytes", "Bytes of the peers' memory on loan here (receiver), of this process's memory lent (sender)."),
		joined: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_transport_joined_total",
			Help: "Grants that took no memory, since the same object was coming already or unclaimed.",
		}),
		grantWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "afterimage_transport_grant_wait_seconds",
			Help:    "Time that a request waited for memory for its objects.",
			Buckets: []float64{1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10},
		}),
		inLine: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "afterimage_transport_grants_waiting",
			Help: "Requests that wait for memory for their objects, in order of arrival.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.inLine, m.transfers, m.bytes, m.wire, m.dropped, m.inFlight, m.conns, m.loans, m.joined, m.grantWait)
	}
	return m
}

// side returns the series of a side, which show 0 from then on.
func (m *Metrics) side(name string) *series {
	result, drops := "complete", []string{"late answer", "unknown credit"}
	if name == sideReceiver {
		result, drops = "claimed", []string{"late abandon", "malformed", "hello"}
	}
	m.conns.WithLabelValues(name)
	for _, reason := range drops {
		m.dropped.WithLabelValues(name, reason)
	}
	return &series{
		done:   m.transfers.WithLabelValues(name, result, ""),
		copied: m.bytes.WithLabelValues(name, roadCopy), lent: m.bytes.WithLabelValues(name, roadLoan),
		wire: m.wire.WithLabelValues(name), inFlight: m.inFlight.WithLabelValues(name), loans: m.loans.WithLabelValues(name),
	}
}
