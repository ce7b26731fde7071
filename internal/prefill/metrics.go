// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/batch"
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

	handedOff    *prometheus.CounterVec // by result
	handOffBytes prometheus.Counter
	handOff      prometheus.Histogram
	adopted      *prometheus.CounterVec // by road
}

// newMetrics registers what the role of a worker has: prefill or decode.
func newMetrics(r prometheus.Registerer, role string, sched *batch.Scheduler) *metrics {
	buckets := prometheus.ExponentialBuckets(0.001, 2, 15) // 1 ms to 16 s
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_" + role + "_requests_total",
			Help: "Calls for answers, by outcome: stop, length, missing, cancelled, error, handoff (to a decode worker).",
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
			Name: "afterimage_" + role + "_generated_tokens_total",
			Help: "Tokens generated.",
		}),
		itemWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "afterimage_prefill_item_wait_seconds",
			Help: "Time from the chat call until an embedding was there.", Buckets: buckets,
		}),
		firstToken: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "afterimage_" + role + "_first_token_seconds",
			Help: "Time from the chat call to its first token.", Buckets: buckets,
		}),
	}
	m.handOvers(buckets)
	m.register(r, role)
	registerScheduler(r, role, sched.Stats)
	return m
}

// register shows what a role counts, from the start on.
func (m *metrics) register(r prometheus.Registerer, role string) {
	r.MustRegister(m.requests, m.generated, m.firstToken)
	if role == "decode" {
		r.MustRegister(m.adopted)
	} else {
		r.MustRegister(m.missing, m.items, m.prompt, m.itemWait, m.handedOff, m.handOffBytes, m.handOff)
	}
	for _, o := range []string{"stop", "length", "missing", "cancelled", "error", "handoff"} {
		m.requests.WithLabelValues(o)
	}
	for _, r := range []control.Road{control.RoadNone, control.RoadLoan, control.RoadCopy, control.RoadTCP} {
		m.items.WithLabelValues(string(r))
	}
}

// handOvers makes what counts states on their way from a P/D to a decode worker.
func (m *metrics) handOvers(buckets []float64) {
	m.handedOff = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "afterimage_prefill_handoffs_total", Help: "States of prompts sent to decode workers, by result: done, failed.",
	}, []string{"result"})
	m.handOffBytes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "afterimage_prefill_handoff_bytes_total", Help: "Bytes of states that decode workers have confirmed.",
	})
	m.handOff = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "afterimage_prefill_handoff_seconds", Help: "Time from the grant to the confirmed delivery of a state.", Buckets: buckets,
	})
	m.adopted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "afterimage_decode_states_total", Help: "States of prompts that were awaited, by road: loan, tcp; failed.",
	}, []string{"road"})
	for _, v := range []string{"done", "failed"} {
		m.handedOff.WithLabelValues(v)
	}
	for _, v := range []string{string(control.RoadLoan), string(control.RoadTCP), "failed"} {
		m.adopted.WithLabelValues(v)
	}
}

// registerScheduler shows the numbers of the scheduler, limits next to usage.
func registerScheduler(r prometheus.Registerer, role string, stats func() batch.Stats) {
	gauge := func(name, help string, f func(batch.Stats) int) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "afterimage_" + role + "_" + name, Help: help},
			func() float64 { return float64(f(stats())) }))
	}
	counter := func(name, help string, f func(batch.Stats) int64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "afterimage_" + role + "_" + name, Help: help},
			func() float64 { return float64(f(stats())) }))
	}
	gauge("sequences", "Requests that can be in the model's memory at once.", func(s batch.Stats) int { return s.Sequences })
	gauge("running_requests", "Requests in the model's memory.", func(s batch.Stats) int { return s.Running })
	gauge("waiting_requests", "Requests that wait for a place in the model's memory.", func(s batch.Stats) int { return s.Waiting })
	gauge("kv_cells", "Size of the model's memory; a token or a row of an image takes one cell.", func(s batch.Stats) int { return s.Cells })
	gauge("kv_cells_used", "Cells of requests in work.", func(s batch.Stats) int { return s.UsedCells })
	gauge("kv_cells_kept", "Cells kept from earlier requests, for those that begin alike.", func(s batch.Stats) int { return s.KeptCells })
	counter("admissions_total", "Times that a request was put into the model's memory.", func(s batch.Stats) int64 { return s.Admitted })
	counter("reused_cells_total", "Cells taken over from an earlier request instead of computed.", func(s batch.Stats) int64 { return s.CachedCells })
	counter("preemptions_total", "Requests that gave up their place and computed their prompt again.", func(s batch.Stats) int64 { return s.Preemptions })
}

// registerBounds shows what the role holds besides what the scheduler does, limits next to usage.
func (p *Prefill) registerBounds(r prometheus.Registerer) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "afterimage_" + p.role() + "_waiting_limit_requests", Help: "Most requests that wait; more are refused.",
	}, func() float64 { return float64(p.cfg.MaxWaiting) }))
	if p.cfg.Arena != nil {
		r.MustRegister(p.cfg.Arena.Collector())
	}
	if p.states != nil {
		p.states.register(r)
	}
	if p.cfg.Residents.on() {
		r.MustRegister(p.cfg.Residents.Cache.Collector())
	}
}
