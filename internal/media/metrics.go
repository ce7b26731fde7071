// SPDX-License-Identifier: Apache-2.0

package media

import "github.com/prometheus/client_golang/prometheus"

// Register exports what b holds beside what it may hold, under the names that gateways of all kinds share.
func (b *Budget) Register(r prometheus.Registerer) {
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "afterimage_gateway_fetched_bytes", Help: "Bytes of fetched images that requests in work hold, or have reserved.",
		}, func() float64 { return float64(b.Used()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "afterimage_gateway_fetched_limit_bytes", Help: "Most bytes of them; a request that needs more waits.",
		}, func() float64 { return float64(b.Bytes()) }),
	)
}
