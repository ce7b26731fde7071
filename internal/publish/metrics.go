// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// Outcome says what became of a publication.
type Outcome string

// The outcomes. All but Stored and Exists are drops.
const (
	Stored Outcome = "stored"
	Exists Outcome = "exists" // another worker was first

	// Refused when published.
	NoStore   Outcome = "no_store"
	Closed    Outcome = "closed"
	Duplicate Outcome = "duplicate" // the same key is pending
	FullItems Outcome = "full_items"
	FullBytes Outcome = "full_bytes"

	// FirstSighting: admission waits for the second.
	FirstSighting Outcome = "first_sighting"

	// Refused before any I/O.
	Empty     Outcome = "empty"
	Malformed Outcome = "malformed"
	NotFinite Outcome = "not_finite"
	TooLarge  Outcome = "too_large" // for the Store, as it says of itself

	// Failed.
	Rejected    Outcome = "rejected"
	Unavailable Outcome = "unavailable"
	Unconfirmed Outcome = "unconfirmed"
	Distrusted  Outcome = "distrusted" // an earlier call for the key was unconfirmed
	Shutdown    Outcome = "shutdown"   // Close ran out of time
)

// What is neither counted nor a drop: a publication that goes on, and a sighting that brings nothing
// new.
const (
	queued Outcome = ""
	known  Outcome = "known"
)

var (
	errEmpty    = errors.New("publish: empty embedding")
	errExists   = errors.New("publish: there already")
	errShutdown = errors.New("publish: shut down")
	errTooLarge = errors.New("publish: object is larger than any that the Store takes")
)

var outcomes = []struct {
	is      error
	outcome Outcome
}{
	{errEmpty, Empty},
	{errExists, Exists},
	{errShutdown, Shutdown},
	{errTooLarge, TooLarge},
	{embedding.ErrMalformed, Malformed},
	{embedding.ErrNotFinite, NotFinite},
	{store.ErrUnconfirmed, Unconfirmed},
	{store.ErrDistrusted, Distrusted},
	{store.ErrRejected, Rejected},
}

func outcomeOf(err error) Outcome {
	if err == nil {
		return Stored
	}
	for _, o := range outcomes {
		if errors.Is(err, o.is) {
			return o.outcome
		}
	}
	return Unavailable
}

// Metrics counts publications. It is a prometheus.Collector.
type Metrics struct {
	outcomes           *prometheus.CounterVec
	items, bytes       prometheus.Gauge
	maxItems, maxBytes prometheus.Gauge
}

// NewMetrics returns counters at zero, one for every outcome.
func NewMetrics() *Metrics {
	m := &Metrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_publish_objects_total",
			Help: "Publications by outcome; all but stored and exists were dropped.",
		}, []string{"outcome"}),
		items: gauge("pending_objects", "Publications that wait or run."),
		bytes: gauge("pending_bytes", "Bytes of memory that publications hold, shared memory counted once."),

		maxItems: gauge("pending_limit_objects", "Most publications that wait or run; one more is dropped."),
		maxBytes: gauge("pending_limit_bytes", "Most bytes of memory that publications hold."),
	}
	for _, o := range []Outcome{Stored, Exists, NoStore, Closed, Duplicate, FullItems, FullBytes, FirstSighting,
		Empty, Malformed, NotFinite, TooLarge, Rejected, Unavailable, Unconfirmed, Distrusted, Shutdown} {
		m.outcomes.WithLabelValues(string(o))
	}
	return m
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "afterimage_publish_" + name, Help: help})
}

func (m *Metrics) count(o Outcome) { m.outcomes.WithLabelValues(string(o)).Inc() }

func (m *Metrics) pending(items int, bytes int64) {
	m.items.Set(float64(items))
	m.bytes.Set(float64(bytes))
}

func (m *Metrics) limits(items int, bytes int64) {
	m.maxItems.Set(float64(items))
	m.maxBytes.Set(float64(bytes))
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.outcomes.Collect(ch)
	for _, g := range []prometheus.Gauge{m.items, m.bytes, m.maxItems, m.maxBytes} {
		g.Collect(ch)
	}
}
