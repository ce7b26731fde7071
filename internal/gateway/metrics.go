// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/media"
	"afterimage/internal/proxy"
)

type metrics struct {
	*proxy.Requests
	images  prometheus.Counter
	items   *prometheus.CounterVec // by source
	repairs prometheus.Counter
	joined  prometheus.Counter

	handOffs *prometheus.CounterVec // by result
}

func newMetrics(r prometheus.Registerer, fetched *media.Budget) *metrics {
	fetched.Register(r)
	m := &metrics{
		Requests: proxy.NewRequests(r),
		images: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_gateway_images_total", Help: "Media parts accepted.",
		}),
		items: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_gateway_items_total",
			Help: "Distinct images delivered, by where the embedding came from.",
		}, []string{"source"}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_gateway_repairs_total", Help: "Attempts repeated because a worker failed or lacked an item.",
		}),
		joined: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_gateway_joined_total", Help: "Images that joined the encode of another request, in flight at the same time.",
		}),
	}
	m.handOffs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "afterimage_gateway_handoffs_total",
		Help: "Attempts in a fleet with decode workers, by result: decode (one of them answered), alone (none was there, the P/D answers), failed.",
	}, []string{"result"})
	for _, v := range []string{"decode", "alone", "failed"} {
		m.handOffs.WithLabelValues(v)
	}
	r.MustRegister(m.handOffs, m.images, m.items, m.repairs, m.joined)
	for _, s := range []string{"local", "store", "encoded", "joined", "resident"} {
		m.items.WithLabelValues(s)
	}
	return m
}
