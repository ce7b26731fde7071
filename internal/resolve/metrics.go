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
	Timeout     Reason = "timeout"   // the Store took longer than Config.Timeout, or the caller's deadline
	Cancelled   Reason = "cancelled" // by the caller
)

// reasons tells the Reason of an error by what it wraps; the first match counts, so a cause stands
// before the class that it comes with.
var reasons = []struct {
	is     error
	reason Reason
}{
	{context.Canceled, Cancelled},
	{context.DeadlineExceeded, Timeout},
	{embedding.ErrMalformed, Malformed},
	{embedding.ErrForeign, Foreign},
	{embedding.ErrContract, Contract},
	{embedding.ErrCorrupt, Corrupt},
	{store.ErrMiss, Absent},
	{arena.ErrFull, NoMemory},
	{arena.ErrTooLarge, NoMemory},
	{store.ErrRejected, Rejected},
	{store.ErrUnconfirmed, Unconfirmed},
}

func reasonOf(err error) Reason {
	for _, r := range reasons {
		if errors.Is(err, r.is) {
			return r.reason
		}
	}
	return Unavailable
}

// Metrics counts what became of items. It is a prometheus.Collector.
type Metrics struct {
	items        *prometheus.CounterVec // by result and reason
	bytes        prometheus.Counter
	localDropped prometheus.Counter
}

// NewMetrics returns counters at zero. Every result and reason is there from the start, so that a
// counter which never moves can be seen.
func NewMetrics() *Metrics {
	m := &Metrics{
		items: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_resolve_items_total",
			Help: "Items by result (local, store, miss) and, for a miss, its reason.",
		}, []string{"result", "reason"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_resolve_store_bytes_total",
			Help: "Bytes of objects taken from the Store.",
		}),
		localDropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_resolve_local_dropped_total",
			Help: "Entries of the local cache dropped because they broke the contract of their reader.",
		}),
	}
	m.items.WithLabelValues(string(control.SourceLocal), "")
	m.items.WithLabelValues(string(control.SourceStore), "")
	for _, r := range []Reason{Absent, NoStore, Oversize, Malformed, Foreign, Contract, Corrupt, NoMemory,
		Rejected, Unavailable, Unconfirmed, Timeout, Cancelled} {
		m.items.WithLabelValues("miss", string(r))
	}
	return m
}

func (m *Metrics) count(results []Result) {
	for _, r := range results {
		result := string(r.Source)
		if r.Buf == nil {
			result = "miss"
		}
		m.items.WithLabelValues(result, string(r.Reason)).Inc()
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.items.Collect(ch)
	m.bytes.Collect(ch)
	m.localDropped.Collect(ch)
}
