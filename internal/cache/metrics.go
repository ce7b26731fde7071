// SPDX-License-Identifier: Apache-2.0

package cache

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the numbers of c, usage next to its limits. A process has one cache.
func (c *Cache) Collector() prometheus.Collector { return collector{c} }

// series is one row of a Collector.
type series struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	get  func(Stats) float64
}

func gauge(name, help string, get func(Stats) int64) series {
	return series{prometheus.NewDesc("afterimage_cache_"+name, help, nil, nil), prometheus.GaugeValue,
		func(s Stats) float64 { return float64(get(s)) }}
}

func total(name, help string, get func(Stats) uint64) series {
	return series{prometheus.NewDesc("afterimage_cache_"+name+"_total", help, nil, nil), prometheus.CounterValue,
		func(s Stats) float64 { return float64(get(s)) }}
}

var all = []series{
	gauge("objects", "Embeddings that are kept after a request.", func(s Stats) int64 { return int64(s.Entries) }),
	gauge("bytes", "Bytes of embeddings that are kept.", func(s Stats) int64 { return s.Bytes }),
	gauge("limit_bytes", "Most bytes of embeddings that are kept.", func(s Stats) int64 { return s.MaxBytes }),
	gauge("loan_bytes", "Bytes of kept embeddings that are on loan from the Store.", func(s Stats) int64 { return s.Foreign }),
	gauge("loan_limit_bytes", "Most bytes of kept embeddings that are on loan.", func(s Stats) int64 { return s.MaxForeign }),
	total("hits", "Embeddings found among those that are kept.", func(s Stats) uint64 { return s.Hits }),
	total("misses", "Embeddings looked for and not found there.", func(s Stats) uint64 { return s.Misses }),
	total("evictions", "Embeddings dropped to make room.", func(s Stats) uint64 { return s.Evictions }),
}

type collector struct{ cache *Cache }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range all {
		ch <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	st := c.cache.Stats()
	for _, s := range all {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, s.get(st))
	}
}
