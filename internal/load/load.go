// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"afterimage/internal/control"
)

// Shot is one request.
type Shot struct {
	At     time.Duration // when it is due, since the start; not read in a closed loop
	Header map[string]string
	// Body returns the request's body and its exact length. It is called shortly before the request is
	// due, from one goroutine, and must not take long.
	Body func() (io.Reader, int64)
	// Images says what the request shows, for the record.
	Images []int
}

// Record is what became of one request. Times are in milliseconds.
type Record struct {
	Index  int     `json:"index"`
	DueMS  float64 `json:"due_ms"`  // since the start
	LagMS  float64 `json:"lag_ms"`  // from due to sent
	TTFTMS float64 `json:"ttft_ms"` // from due to the first text; 0 if there was none
	EndMS  float64 `json:"end_ms"`  // from due to the end of the answer
	TPOTMS float64 `json:"tpot_ms"` // between the first text and the last, per token; 0 with less than two
	Tokens int     `json:"tokens"`  // of the answer, as the server counts them; else pieces of text
	Status int     `json:"status,omitempty"`
	Error  string  `json:"error,omitempty"`
	Images []int   `json:"images,omitempty"`
	// Trace is what the gateway says of the request, if it is one of ours.
	Trace *control.Trace `json:"trace,omitempty"`
	gaps  []time.Duration
}

// OK says whether the request was answered to its end.
func (r *Record) OK() bool { return r.Error == "" }

// Config says how to put a load on an endpoint.
type Config struct {
	URL    string // of the server, e.g. http://127.0.0.1:8000
	Key    string // API key; "" sends none
	Client *http.Client
	// Closed is how many requests are under way at once; 0 sends each when it is due.
	Closed int
	// Traces asks a gateway for the trace of each answer, once that has ended.
	Traces bool
	// Done, if set, is called after each request, one call at a time.
	Done func(*Record)
}

// NewClient returns a client that keeps enough connections for an open loop.
func NewClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 1024, DisableCompression: true, WriteBufferSize: 64 << 10, ReadBufferSize: 32 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Run sends all shots and returns a record for each that was sent, in order.
func Run(ctx context.Context, cfg Config, shots []Shot) []Record {
	r := &runner{cfg: cfg, start: time.Now(), records: make([]Record, len(shots)), sent: make([]bool, len(shots))}
	var wg sync.WaitGroup
	if cfg.Closed > 0 {
		r.closed(ctx, &wg, shots)
	} else {
		r.open(ctx, &wg, shots)
	}
	wg.Wait()
	var out []Record
	for i := range r.records {
		if r.sent[i] {
			out = append(out, r.records[i])
		}
	}
	return out
}

// runner is a load in progress.
type runner struct {
	cfg     Config
	start   time.Time
	records []Record   // each written by one goroutine
	sent    []bool     // written by the one that starts them
	mu      sync.Mutex // held around Done
}

// open sends each shot when it is due.
func (r *runner) open(ctx context.Context, wg *sync.WaitGroup, shots []Shot) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range shots {
		body, n := shots[i].Body()
		due := r.start.Add(shots[i].At)
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		r.sent[i] = true
		wg.Go(func() { r.shoot(ctx, i, &shots[i], due, body, n) })
	}
}

// closed keeps as many shots under way as the configuration says.
func (r *runner) closed(ctx context.Context, wg *sync.WaitGroup, shots []Shot) {
	turns := make(chan struct{}, r.cfg.Closed)
	for i := range shots {
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
			return
		}
		r.sent[i] = true
		body, n := shots[i].Body()
		wg.Go(func() {
			defer func() { <-turns }()
			r.shoot(ctx, i, &shots[i], time.Now(), body, n)
		})
	}
}

// shoot sends one request and reads its answer.
func (r *runner) shoot(ctx context.Context, i int, s *Shot, due time.Time, body io.Reader, n int64) {
	rec := &r.records[i]
	rec.Index, rec.DueMS, rec.Images = i, milliseconds(due.Sub(r.start)), s.Images
	a := answer{rec: rec, due: due}
	if err := a.ask(ctx, &r.cfg, s, body, n); err != nil {
		rec.Error = err.Error()
	}
	if r.cfg.Traces {
		a.tell(ctx, &r.cfg)
	}
	if r.cfg.Done != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cfg.Done(rec)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
