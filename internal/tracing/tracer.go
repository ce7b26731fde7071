// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config wires a Tracer. A zero field stands for the default in its comment.
type Config struct {
	URL     string            // of the receiver, path included: http://collector:4318/v1/traces
	Headers map[string]string // of each export
	Service string            // service.name
	Name    string            // service.instance.id
	Version string            // service.version

	Queue   int           // spans that wait at most; 4096
	Batch   int           // spans of one export at most; 512
	Every   time.Duration // how long a span waits for others; 2 s
	Timeout time.Duration // of one export; 5 s

	Registry prometheus.Registerer
	Logger   *slog.Logger
}

// Tracer takes spans and sends them. Its methods may be called from any goroutine; a nil Tracer takes none.
type Tracer struct {
	cfg    Config
	shown  string // the receiver's URL for logs
	client *http.Client
	queue  chan *Span
	stop   chan struct{} // closed by Close
	done   chan struct{}
	spans  *prometheus.CounterVec // by what became of them

	failing bool // the latest export failed; of the goroutine that sends
	cut     context.Context
	abort   context.CancelFunc
	closing sync.Once
}

// New returns a Tracer that sends until Close.
func New(cfg Config) *Tracer {
	cfg.Queue, cfg.Batch = cmp.Or(cfg.Queue, 4096), cmp.Or(cfg.Batch, 512)
	cfg.Every, cfg.Timeout = cmp.Or(cfg.Every, 2*time.Second), cmp.Or(cfg.Timeout, 5*time.Second)
	t := &Tracer{
		cfg: cfg, shown: plain(cfg.URL), client: &http.Client{Transport: &http.Transport{MaxIdleConns: 1, IdleConnTimeout: time.Minute, Proxy: http.ProxyFromEnvironment}},
		queue: make(chan *Span, cfg.Queue), stop: make(chan struct{}), done: make(chan struct{}),
		spans: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "afterimage_tracing_spans_total", Help: "Spans by what became of them: exported, dropped because the queue was full, failed to export.",
		}, []string{"result"}),
	}
	t.cut, t.abort = context.WithCancel(context.Background())
	for _, result := range []string{"exported", "dropped", "failed"} {
		t.spans.WithLabelValues(result)
	}
	cfg.Registry.MustRegister(t.spans)
	go t.run()
	return t
}

// Close sends what waits, until ctx ends, and stops. Spans that end later are dropped.
func (t *Tracer) Close(ctx context.Context) {
	if t == nil {
		return
	}
	t.closing.Do(func() { close(t.stop) })
	defer context.AfterFunc(ctx, t.abort)()
	<-t.done
	t.abort()
	t.client.CloseIdleConnections()
}

// put takes a span that has ended. It never waits.
func (t *Tracer) put(s *Span) {
	select {
	case t.queue <- s:
	default:
		t.spans.WithLabelValues("dropped").Inc()
	}
}

// run sends batches until Close, and then what is left.
func (t *Tracer) run() {
	defer close(t.done)
	tick := time.NewTicker(t.cfg.Every)
	defer tick.Stop()
	var batch []*Span
	send := func() {
		if len(batch) > 0 {
			t.export(batch)
			batch = nil
		}
	}
	for {
		select {
		case s := <-t.queue:
			if batch = append(batch, s); len(batch) == t.cfg.Batch {
				send()
			}
		case <-tick.C:
			send()
		case <-t.stop:
			for len(t.queue) > 0 {
				if batch = append(batch, <-t.queue); len(batch) == t.cfg.Batch {
					send()
				}
			}
			send()
			return
		}
	}
}

// export sends a batch and counts what became of it. The first of failures in a row is logged.
func (t *Tracer) export(batch []*Span) {
	err := t.post(t.encode(batch))
	result := "exported"
	if err != nil {
		result = "failed"
		if !t.failing && t.cut.Err() == nil {
			if u, ok := errors.AsType[*url.Error](err); ok {
				err = u.Err // the rest of it is the URL with its credentials
			}
			t.cfg.Logger.Warn("spans cannot be exported", "to", t.shown, "err", err)
		}
	} else if t.failing {
		t.cfg.Logger.Info("spans are exported again", "to", t.shown)
	}
	t.failing = err != nil
	t.spans.WithLabelValues(result).Add(float64(len(batch)))
}

// post makes one export.
func (t *Tracer) post(body []byte) error {
	ctx, cancel := context.WithTimeout(t.cut, t.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, v := range t.cfg.Headers {
		req.Header.Set(name, v)
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it answered %s: %.200s", resp.Status, said)
	}
	return err
}

// plain returns a URL without name, password and query, and nothing of what is none.
func plain(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery = nil, ""
	return u.String()
}
