// SPDX-License-Identifier: Apache-2.0

package ram

import "github.com/prometheus/client_golang/prometheus"

// Stats is a snapshot of a Server. Counts are since start.
type Stats struct {
	Objects      int    `json:"objects"`
	Bytes        int64  `json:"bytes"`         // of objects
	UploadBytes  int64  `json:"upload_bytes"`  // reserved, not committed
	ReadingBytes int64  `json:"reading_bytes"` // of objects that are being sent
	LimitBytes   int64  `json:"limit_bytes"`
	Loans        int    `json:"loans"`      // ranges that clients may be reading
	LoanBytes    int64  `json:"loan_bytes"` // of objects on loan
	Connections  int    `json:"connections"`
	MaxConns     int    `json:"max_connections"`
	LoanLimit    int64  `json:"loan_limit_bytes"`
	Epoch        uint64 `json:"epoch"`

	Puts       uint64 `json:"puts"`       // objects stored
	Duplicates uint64 `json:"duplicates"` // PUTs of what was there
	Gets       uint64 `json:"gets"`       // objects asked for
	Hits       uint64 `json:"hits"`
	Misses     uint64 `json:"misses"` // objects of an unwanted size included
	Evictions  uint64 `json:"evictions"`
	Expired    uint64 `json:"expired"` // objects dropped at the end of their TTL
	Removed    uint64 `json:"removed"`
	Lent       uint64 `json:"lent"`      // loans given
	Recalls    uint64 `json:"recalls"`   // loans asked back
	Rejected   uint64 `json:"rejected"`  // PUTs without room or past their deadline
	Aborted    uint64 `json:"aborted"`   // uploads that were cut or late
	Refused    uint64 `json:"refused"`   // connections of other users or over the limit
	Malformed  uint64 `json:"malformed"` // connections that broke the wire format
}

// Stats returns the state at this moment.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	conns := len(s.conns)
	s.mu.Unlock()
	h := s.shelf
	h.mu.Lock()
	defer h.mu.Unlock()
	h.syncLocked()
	return Stats{
		Objects: len(h.objects), Bytes: h.used, UploadBytes: h.held, ReadingBytes: h.reading,
		LimitBytes: h.limit, Loans: h.loans, LoanBytes: h.lentSum, LoanLimit: h.limit / 2,
		Connections: conns, MaxConns: s.cfg.MaxConns, Epoch: s.epoch,
		Puts: h.n.puts, Duplicates: h.n.duplicates, Gets: h.n.gets, Hits: h.n.hits, Misses: h.n.misses,
		Evictions: h.n.evictions, Expired: h.n.expired, Removed: h.n.removed, Lent: h.n.lent, Recalls: h.n.recalls,
		Rejected: h.n.rejected, Aborted: h.n.aborted,
		Refused: s.refused.Load(), Malformed: s.malformed.Load(),
	}
}

// Collector returns the metrics of s: gauges with their limit next to them, and totals.
func (s *Server) Collector() prometheus.Collector { return &collector{srv: s} }

// metric is one row of a collector.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	get  func(Stats) float64
}

func gauge(name, help string, get func(Stats) float64) metric {
	return metric{prometheus.NewDesc("afterimage_store_"+name, help, nil, nil), prometheus.GaugeValue, get}
}

func total(name, help string, get func(Stats) uint64) metric {
	return metric{prometheus.NewDesc("afterimage_store_"+name+"_total", help, nil, nil), prometheus.CounterValue,
		func(s Stats) float64 { return float64(get(s)) }}
}

var metrics = []metric{
	gauge("objects", "Objects in the Store.", func(s Stats) float64 { return float64(s.Objects) }),
	gauge("bytes", "Bytes of objects in the Store.", func(s Stats) float64 { return float64(s.Bytes) }),
	gauge("limit_bytes", "Most bytes that the Store holds.", func(s Stats) float64 { return float64(s.LimitBytes) }),
	gauge("upload_bytes", "Bytes reserved for uploads in progress.", func(s Stats) float64 { return float64(s.UploadBytes) }),
	gauge("reading_bytes", "Bytes of objects being sent.", func(s Stats) float64 { return float64(s.ReadingBytes) }),
	gauge("loan_bytes", "Bytes of objects that clients hold on loan.", func(s Stats) float64 { return float64(s.LoanBytes) }),
	gauge("loan_limit_bytes", "Most bytes that clients may keep on loan in their caches.", func(s Stats) float64 { return float64(s.LoanLimit) }),
	gauge("loans", "Loans that clients hold.", func(s Stats) float64 { return float64(s.Loans) }),
	gauge("connections", "Open connections.", func(s Stats) float64 { return float64(s.Connections) }),
	gauge("limit_connections", "Most open connections; more are refused.", func(s Stats) float64 { return float64(s.MaxConns) }),
	total("puts", "Objects stored.", func(s Stats) uint64 { return s.Puts }),
	total("duplicate_puts", "PUTs of an object that was there.", func(s Stats) uint64 { return s.Duplicates }),
	total("gets", "Objects asked for.", func(s Stats) uint64 { return s.Gets }),
	total("hits", "Objects found.", func(s Stats) uint64 { return s.Hits }),
	total("misses", "Objects not found, or of an unwanted size.", func(s Stats) uint64 { return s.Misses }),
	total("evictions", "Objects dropped to make room.", func(s Stats) uint64 { return s.Evictions }),
	total("expired", "Objects dropped at the end of their time to live.", func(s Stats) uint64 { return s.Expired }),
	total("lent", "Loans given.", func(s Stats) uint64 { return s.Lent }),
	total("recalls", "Loans asked back.", func(s Stats) uint64 { return s.Recalls }),
	total("removed", "Objects removed by request.", func(s Stats) uint64 { return s.Removed }),
	total("rejected_puts", "PUTs refused for lack of room or for being late.", func(s Stats) uint64 { return s.Rejected }),
	total("aborted_puts", "Uploads cut half way, past their deadline, or not what they say that they are.", func(s Stats) uint64 { return s.Aborted }),
	total("refused_connections", "Connections of other users or over the limit.", func(s Stats) uint64 { return s.Refused }),
	total("malformed_connections", "Connections closed for breaking the wire format.", func(s Stats) uint64 { return s.Malformed }),
}

type collector struct{ srv *Server }

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range metrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	st := c.srv.Stats()
	for _, m := range metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.get(st))
	}
}
