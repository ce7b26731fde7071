// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/control"
)

type metrics struct {
	requests   *prometheus.CounterVec // by outcome
	missing    prometheus.Counter
	items      *prometheus.CounterVec // by road
	prompt     prometheus.Counter
	generated  prometheus.Counter
	itemWait   prometheus.Histogram
	firstToken prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	buckets := prometheus.ExponentialBuckets(0.001, 2, 15) // 1 ms to 16 s
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_prefill_requests_total",
			Help: "Chat calls, by outcome: stop, length, missing, cancelled, error.",
		}, []string{"outcome"}),
		missing: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_prefill_missing_items_total",
			Help: "Embeddings that were not there when the prompt needed them.",
		}),
		items: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_prefill_items_total",
			Help: "Embeddings that reached a prompt, by road: none (resident), loan, copy (from the Store), tcp.",
		}, []string{"road"}),
		prompt: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_prefill_prompt_tokens_total",
			Help: "Prompt positions prefilled, images included.",
		}),
		generated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_prefill_generated_tokens_total",
			Help: "Tokens generated.",
		}),
		itemWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "afterimage_prefill_item_wait_seconds",
			Help: "Time the prompt stood still for an embedding.", Buckets: buckets,
		}),
		firstToken: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "afterimage_prefill_first_token_seconds",
			Help: "Time from the chat call to its first token.", Buckets: buckets,
		}),
	}
	r.MustRegister(m.requests, m.missing, m.items, m.prompt, m.generated, m.itemWait, m.firstToken)
	for _, o := range []string{"stop", "length", "missing", "cancelled", "error"} {
		m.requests.WithLabelValues(o)
	}
	for _, r := range []control.Road{control.RoadNone, control.RoadLoan, control.RoadCopy, control.RoadTCP} {
		m.items.WithLabelValues(string(r))
	}
	return m
}
