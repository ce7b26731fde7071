// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Collector returns the metrics of c: gauges with their limit next to them, and totals.
func (c *Client) Collector() prometheus.Collector { return collector{c} }

type collector struct{ c *Client }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("afterimage_mooncake_"+name, help, labels, nil)
}

// gauges and totals are the metrics without labels.
var (
	gauges = []struct {
		d   *prometheus.Desc
		get func(Stats) float64
	}{
		{desc("connected", "1 while mooncake_client has the arena."), func(s Stats) float64 { return number(s.Connected) }},
		{desc("breaker_open", "1 while calls are refused because the master is away."), func(s Stats) float64 { return number(s.BreakerOpen) }},
		{desc("quarantine_bytes", "Bytes of the arena that someone may still be using."), func(s Stats) float64 { return float64(s.QuarantineBytes) }},
		{desc("quarantine_limit_bytes", "Bytes in quarantine beyond which no transfer starts."), func(s Stats) float64 { return float64(s.QuarantineLimit) }},
		{desc("quarantine_ranges", "Ranges of the arena that someone may still be using."), func(s Stats) float64 { return float64(s.QuarantineRanges) }},
		{desc("distrusted_keys", "Keys that a dead storage node may be answering for."), func(s Stats) float64 { return float64(s.Distrusted) }},
		{desc("doomed_keys", "Keys whose removal waits for readers."), func(s Stats) float64 { return float64(s.Doomed) }},
	}
	totals = []struct {
		d   *prometheus.Desc
		get func(Stats) uint64
	}{
		{desc("breaks_total", "Times that the breaker opened."), func(s Stats) uint64 { return s.Breaks }},
		{desc("reconnects_total", "Connections to mooncake_client lost."), func(s Stats) uint64 { return s.Reconnects }},
		{desc("rotations_total", "Further identities given to the arena."), func(s Stats) uint64 { return s.Rotations }},
		{desc("abandoned_total", "Transfers that were not waited for to the end."), func(s Stats) uint64 { return s.Abandoned }},
		{desc("quarantined_total", "Ranges that went into quarantine."), func(s Stats) uint64 { return s.Quarantined }},
	}
	descCalls = desc("calls_total", "Calls by operation.", "op")
	descTime  = desc("call_seconds_total", "Time of all calls by operation.", "op")
	descItems = desc("items_total", "Keys by operation and outcome.", "op", "outcome")
	descBytes = desc("bytes_total", "Bytes of objects by operation.", "op")
	descCodes = desc("codes_total", "Answers for single keys by Mooncake's ErrorCode.", "code")
)

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range gauges {
		ch <- m.d
	}
	for _, m := range totals {
		ch <- m.d
	}
	for _, d := range []*prometheus.Desc{descCalls, descTime, descItems, descBytes, descCodes} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	st := c.c.Stats()
	for _, m := range gauges {
		ch <- prometheus.MustNewConstMetric(m.d, prometheus.GaugeValue, m.get(st))
	}
	total := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	for _, m := range totals {
		total(m.d, float64(m.get(st)))
	}
	for _, op := range []struct {
		name string
		OpStats
	}{{"exists", st.Exists}, {"get", st.Get}, {"put", st.Put}, {"remove", st.Remove}} {
		total(descCalls, float64(op.Calls), op.name)
		total(descTime, op.Time.Seconds(), op.name)
		total(descBytes, float64(op.Bytes), op.name)
		total(descItems, float64(op.OK), op.name, "ok")
		total(descItems, float64(op.Misses), op.name, "miss")
		total(descItems, float64(op.Rejected), op.name, "rejected")
		total(descItems, float64(op.Unavailable), op.name, "unavailable")
		total(descItems, float64(op.Unconfirmed), op.name, "unconfirmed")
	}
	for code, n := range st.Codes {
		total(descCodes, float64(n), strconv.Itoa(int(code)))
	}
}
