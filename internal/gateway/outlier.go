// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A worker that answers probes and whose calls fail all the same is left alone after outlierFails failures in a
// row: for outlierFirst, then twice as long each time that a call fails after its rest, up to outlierLast.
const (
	outlierFails = 3
	outlierFirst = time.Second
	outlierLast  = 16 * time.Second
)

// outliers counts the failures of workers' calls: those that broke, and answers of status 500 and above. Methods
// may be called from any goroutine.
type outliers struct {
	ejections prometheus.Counter
	log       *slog.Logger

	mu sync.Mutex // guards of
	of map[string]*outlier
}

// outlier is what is known of the worker at one URL.
type outlier struct {
	fails int           // in a row
	rest  time.Duration // for which it was left alone last
	until time.Time     // it is left alone till then; the first failure after that leaves it alone again
}

func newOutliers(r prometheus.Registerer, log *slog.Logger) *outliers {
	o := &outliers{log: log, of: map[string]*outlier{}, ejections: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "afterimage_gateway_ejections_total", Help: "Times that a worker was left alone because its calls failed in a row.",
	})}
	r.MustRegister(o.ejections)
	return o
}

// worked notes a call that came to a good end, or to an answer that is the caller's fault.
func (o *outliers) worked(url string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, url)
}

// failed notes a call that failed.
func (o *outliers) failed(w worker) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.of[w.URL]
	if s == nil {
		s = &outlier{}
		o.of[w.URL] = s
	}
	now := time.Now()
	if s.fails++; s.fails < outlierFails || now.Before(s.until) {
		return
	}
	s.rest = min(max(2*s.rest, outlierFirst), outlierLast)
	s.until = now.Add(s.rest)
	o.ejections.Inc()
	o.log.Warn("worker left alone", "name", w.Seen.Name, "url", w.URL, "failures", s.fails, "for", s.rest)
}

// answered notes the status of an answer.
func (o *outliers) answered(w worker, status int) {
	if status >= http.StatusInternalServerError {
		o.failed(w)
	} else {
		o.worked(w.URL)
	}
}

// left says whether the worker is left alone. Nil leaves none.
func (o *outliers) left(url string) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.of[url]
	return s != nil && time.Now().Before(s.until)
}
