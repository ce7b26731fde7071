// SPDX-License-Identifier: Apache-2.0

package store

import "github.com/prometheus/client_golang/prometheus"

// Collectors returns what a Guard counts, for a registry.
func (g *Guard) Collectors() []prometheus.Collector {
	gauge := func(name, help string, f func(GuardStats) float64) prometheus.Collector {
		opts := prometheus.GaugeOpts{Name: "afterimage_store_client_" + name, Help: help}
		return prometheus.NewGaugeFunc(opts, func() float64 { return f(g.Stats()) })
	}
	return []prometheus.Collector{
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "afterimage_store_client_unconfirmed_total",
			Help: "Store calls that ended without the Store being known to be done with our memory.",
		}, func() float64 { return float64(g.Stats().Unconfirmed) }),
		gauge("quarantined_bytes", "Bytes of memory given up because the Store may still use them.",
			func(s GuardStats) float64 { return float64(s.Quarantined) }),
		gauge("quarantined_limit_bytes", "Bytes given up beyond which the Store client closes for good.",
			func(s GuardStats) float64 { return float64(s.Limit) }),
		gauge("distrusted_keys", "Keys neither read nor stored any more after an unconfirmed call.",
			func(s GuardStats) float64 { return float64(s.Distrusted) }),
		gauge("closed", "1 when the Store client has closed for good and this worker has to be restarted.",
			func(s GuardStats) float64 {
				if s.Shut {
					return 1
				}
				return 0
			}),
	}
}
