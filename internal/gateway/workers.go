// SPDX-License-Identifier: Apache-2.0

package gateway

import "github.com/prometheus/client_golang/prometheus"

var workersDesc = prometheus.NewDesc("afterimage_gateway_workers", "Workers that this gateway was told of, by role and state: up is in service.",
	[]string{"role", "state"}, nil)

var heldDesc = prometheus.NewDesc("afterimage_gateway_held_keys", "Embeddings in the caches of Encoders in service, as far as they tell.", nil, nil)

// workersCollector counts the workers of a fleet, and what Encoders hold. It is a prometheus.Collector.
type workersCollector struct{ fleet *fleet }

// Describe implements prometheus.Collector.
func (workersCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- workersDesc
	ch <- heldDesc
}

// Collect implements prometheus.Collector.
func (c workersCollector) Collect(ch chan<- prometheus.Metric) {
	snap := c.fleet.snapshot()
	keys := 0
	for _, w := range snap.Encoders {
		if w.Up {
			keys += w.held.size()
		}
	}
	ch <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(keys))
	for role, workers := range map[string][]worker{"encoder": snap.Encoders, "prefill": snap.Prefills, "decode": snap.Decodes} {
		if role == "decode" && len(workers) == 0 {
			continue // a fleet that has none misses none
		}
		up := 0
		for _, w := range workers {
			if w.Up {
				up++
			}
		}
		count := func(state string, n int) {
			ch <- prometheus.MustNewConstMetric(workersDesc, prometheus.GaugeValue, float64(n), role, state)
		}
		count("up", up)
		count("down", len(workers)-up)
	}
}
