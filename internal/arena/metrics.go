// SPDX-License-Identifier: Apache-2.0

package arena

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the memory of a, usage next to its limit. A process has one arena.
func (a *Arena) Collector() prometheus.Collector { return collector{a} }

var (
	usedDesc        = desc("bytes", "Bytes of the arena that are handed out; those in quarantine are not among them.")
	limitDesc       = desc("limit_bytes", "Size of the arena.")
	peakDesc        = desc("peak_bytes", "Most bytes handed out or in quarantine at once since start.")
	quarantinedDesc = desc("quarantined_bytes", "Bytes of the arena that are kept from use because someone may still write to them.")
)

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("afterimage_arena_"+name, help, nil, nil)
}

type collector struct{ arena *Arena }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{usedDesc, limitDesc, peakDesc, quarantinedDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	st := c.arena.Stats()
	gauge := func(d *prometheus.Desc, bytes int64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(bytes))
	}
	gauge(usedDesc, st.Reserved+st.Committed)
	gauge(limitDesc, st.Capacity)
	gauge(peakDesc, st.Peak)
	gauge(quarantinedDesc, st.Quarantined)
}
