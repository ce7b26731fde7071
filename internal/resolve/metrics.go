// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// Reason says why an item has to be encoded.
type Reason string

// The reasons. Absent is the ordinary one; Malformed to Corrupt are objects that were dropped; the
// rest are faults of the Store or limits.
const (
	Absent      Reason = "absent"
	NoStore     Reason = "no_store"
	Oversize    Reason = "oversize" // larger than the read buffer
	Malformed   Reason = "malformed"
	Foreign     Reason = "foreign" // object of another key
	Contract    Reason = "contract"
	Corrupt     Reason = "corrupt"
	NoMemory    Reason = "no_memory" // the arena of this process is full
	Rejected    Reason = "rejected"
	Unavailable Reason = "unavailable"
	Unconfirmed Reason = "unconfirmed"
	Timeout     Reason = "timeout"    // the Store took longer than Config.Timeout, or the caller's deadline
	Cancelled   Reason = "cancelled"  // by the caller
	Expired     Reason = "expired"    // its lease ran out, twice
	Recompute   Reason = "recompute"  // encoding is expected to be faster
	Distrusted  Reason = "distrusted" // an earlier call for its key was unconfirmed
)

// reasons tells the Reason of an error by what it wraps; the first match counts, so a cause stands
// before the class that it comes with.
var reasons = []struct {
	is     error
	reason Reason
}{
	{store.ErrUnconfirmed, Unconfirmed},
	{store.ErrDistrusted, Distrusted},
	{context.Canceled, Cancelled},
	{context.DeadlineExceeded, Timeout},
	{embedding.ErrMalformed, Malformed},
	{embedding.ErrForeign, Foreign},
	{embedding.ErrContract, Contract},
	{embedding.ErrCorrupt, Corrupt},
	{store.ErrExpired, Expired},
	{store.ErrMiss, Absent},
	{arena.ErrFull, NoMemory},
	{arena.ErrTooLarge, NoMemory},
	{store.ErrRejected, Rejected},
}

func reasonOf(err error) Reason {
	for _, r := range reasons {
		if errors.Is(err, r.is) {
			return r.reason
		}
	}
	return Unavailable
}

// allReasons lists every Reason.
var allReasons = []Reason{Absent, NoStore, Oversize, Malformed, Foreign, Contract, Corrupt, NoMemory, Rejected,
	Unavailable, Unconfirmed, Timeout, Cancelled, Expired, Recompute, Distrusted}

// outcomeKey is what items are counted by.
type outcomeKey struct {
	source control.Source // "" for a miss
	reason Reason
}

// Metrics counts what became of items. It is a prometheus.Collector.
type Metrics struct {
	items        *prometheus.CounterVec            // by result and reason
	counters     map[outcomeKey]prometheus.Counter // those of items; never changed
	bytes        prometheus.Counter
	localDropped prometheus.Counter
	hedged       prometheus.Counter
	hedgeWon     prometheus.Counter
	unasked      prometheus.Counter
	reading      prometheus.Gauge
	maxReading   prometheus.Gauge
}

// NewMetrics returns counters at zero. Every result and reason is there from the start, so that a
// counter which never moves can be seen.
func NewMetrics() *Metrics {
	m := &Metrics{
		items: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_resolve_items_total",
			Help: "Items by result (local, store, encoded, miss) and, for a miss, its reason.",
		}, []string{"result", "reason"}),
		counters:     map[outcomeKey]prometheus.Counter{},
		bytes:        counter("store_bytes_total", "Bytes of objects taken from the Store."),
		localDropped: counter("local_dropped_total", "Entries of the local cache dropped because they broke the contract of their reader."),
		hedged:       counter("hedged_total", "Items encoded as well because their read was late."),
		hedgeWon:     counter("hedge_won_total", "Items whose encode was faster than their late read."),
		unasked:      counter("unasked_total", "Lookups that read from the Store without a question before, since those before found something."),
		reading:      gauge("reading_bytes", "Bytes of memory that reads of the Store take up; those on loan take none."),
		maxReading:   gauge("reading_limit_bytes", "Most bytes of memory that reads take up; more wait for their turn."),
	}
	for _, s := range []control.Source{control.SourceLocal, control.SourceStore, control.SourceEncoded} {
		m.counters[outcomeKey{source: s}] = m.items.WithLabelValues(string(s), "")
	}
	for _, r := range allReasons {
		m.counters[outcomeKey{reason: r}] = m.items.WithLabelValues("miss", string(r))
	}
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "afterimage_resolve_" + name, Help: help})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "afterimage_resolve_" + name, Help: help})
}

func (m *Metrics) count(results []Result) {
	for i := range results {
		m.counters[outcomeKey{results[i].Source, results[i].Reason}].Inc()
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.items.Collect(ch)
	for _, c := range []prometheus.Collector{m.bytes, m.localDropped, m.hedged, m.hedgeWon, m.unasked, m.reading, m.maxReading} {
		c.Collect(ch)
	}
}
