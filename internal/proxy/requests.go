// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/openai"
)

// Requests counts and times what clients ask a gateway for, whatever workers stand behind it. All methods may
// be called from any goroutine.
type Requests struct {
	ended     *prometheus.CounterVec // by status
	cut       prometheus.Counter
	choices   *prometheus.CounterVec // by reason
	running   prometheus.Gauge
	firstByte prometheus.Histogram
	duration  prometheus.Histogram
}

// NewRequests registers with r.
func NewRequests(r prometheus.Registerer) *Requests {
	buckets := prometheus.ExponentialBuckets(0.001, 2, 17) // 1 ms to 65 s
	m := &Requests{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_gateway_requests_total",
			Help: "Requests of the chat and completions APIs, by the status that the client saw; 499 is a client that left.",
		}, []string{"status"}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "afterimage_gateway_cut_streams_total", Help: "Answers that ended in an error frame.",
		}),
		choices: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_gateway_prefill_choices_total",
			Help: "P/Ds chosen for attempts, by reason: prefix (it has seen the conversation), overridden (who has seen it is too busy), load (nobody has), repair, client, round-robin, random.",
		}, []string{"by"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "afterimage_gateway_requests_running", Help: "Requests in work.",
		}),
		firstByte: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "afterimage_gateway_first_byte_seconds", Help: "Time to the worker's first byte.", Buckets: buckets,
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "afterimage_gateway_request_seconds", Help: "Time of a whole request.", Buckets: buckets,
		}),
	}
	for _, by := range []string{"prefix", "overridden", "load"} {
		m.choices.WithLabelValues(by)
	}
	r.MustRegister(m.ended, m.cut, m.choices, m.running, m.firstByte, m.duration)
	return m
}

// Begin counts a request as running until end, which is called with the status that the client saw.
func (m *Requests) Begin() (end func(status int)) {
	start := time.Now()
	m.running.Inc()
	return func(status int) {
		m.ended.WithLabelValues(strconv.Itoa(status)).Inc()
		m.duration.Observe(time.Since(start).Seconds())
		m.running.Dec() // last: where nothing runs, all is counted
	}
}

// Chosen notes that a worker was chosen for a prompt, and in a word why.
func (m *Requests) Chosen(by string) { m.choices.WithLabelValues(by).Inc() }

// FirstByte notes that the worker's answer to a request that came at start has begun.
func (m *Requests) FirstByte(start time.Time) { m.firstByte.Observe(time.Since(start).Seconds()) }

// Finish reports err in the shape that still fits, in the words that told has for clients, and returns the status
// that the client saw. log says whose request it is.
// A request that fails for want of workers is also told of at level warn.
func (m *Requests) Finish(out *Reply, err error, told func(error) error, log *slog.Logger) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, context.Canceled):
		return StatusLeft
	case out.Started():
		m.cut.Inc()
		log.Warn("stream cut", "err", err)
		if !errors.Is(err, ErrToldFailure) {
			out.Fail(told(err))
		}
		return http.StatusBadGateway
	}
	e := openai.AsError(told(err))
	if e.Status >= 500 {
		log.Warn("request failed", "status", e.Status, "err", err)
	}
	out.Error(e)
	return e.Status
}
