// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"time"

	"afterimage/internal/openai"
	"afterimage/internal/route"
)

// verdict is what a request has learnt about a worker.
type verdict int

const (
	broke   verdict = iota + 1 // its call broke: another worker is better, but it may be back
	refused                    // it said no: asking again is no use
)

// history is what the attempts of one request teach the next one.
type history struct {
	workers map[string]verdict // by URL
	force   map[int]time.Time  // images that must be encoded afresh, and since when
	wrong   map[int]bool       // those of them whose objects P/D was given and refused
	round   int                // attempts that failed
	stay    string             // URL of the P/D that lacked only those; it has the others
	cause   error              // why the latest attempt failed
	alone   bool               // no decode worker takes the answer over: P/D is to give it
	// left says which workers are left alone while there are others; nil leaves none.
	left func(url string) bool
}

func newHistory() *history {
	return &history{workers: map[string]verdict{}, force: map[int]time.Time{}, wrong: map[int]bool{}}
}

// note files why an attempt failed and says whether another may succeed.
func (h *history) note(err error) bool {
	h.cause, h.stay = err, ""
	h.round++
	var missing *missingError
	var broken *brokenError
	var refusal *refusedError
	var undelivered *undeliveredError
	var alone *aloneError
	switch {
	case errors.As(err, &missing):
		for _, i := range missing.items {
			h.force[i] = time.Now()
		}
		for _, i := range missing.wrong {
			h.wrong[i] = true
		}
		h.stay = missing.url
	case errors.As(err, &broken):
		h.workers[broken.url] = max(h.workers[broken.url], broke)
	case errors.As(err, &refusal):
		h.workers[refusal.url] = refused
	case errors.As(err, &alone):
		h.alone = true
	case errors.As(err, &undelivered): // between two workers; neither is to blame
	default:
		return false
	}
	return true
}

// forces says whether image i must be encoded afresh.
func (h *history) forces(i int) bool { return !h.force[i].IsZero() }

// errNoneLeft: workers are up, but all have refused this request.
var errNoneLeft = errors.New("every worker has refused this request")

// pick runs choose on the workers that this request has had no trouble with; when that yields none
// (-1), on those whose calls broke and that are up again. Workers that are left alone come last.
func (h *history) pick(ws []worker, choose func([]route.Peer) int) int {
	for _, all := range []bool{false, true} {
		for worst := verdict(0); worst < refused; worst++ {
			fit := func(w worker) bool {
				return h.workers[w.URL] <= worst && (all || h.left == nil || !h.left(w.URL))
			}
			if i := choose(peers(ws, fit)); i >= 0 {
				return i
			}
		}
	}
	return -1
}

// newHistory returns that of a request which begins.
func (g *Gateway) newHistory() *history {
	h := newHistory()
	h.left = g.outliers.left
	return h
}

// missingError: P/D lacks items of the attempt.
type missingError struct {
	url   string
	items []int
	wrong []int // those of items that it was given and refused
}

func (e *missingError) Error() string { return fmt.Sprintf("items %v are missing", e.items) }

// undeliveredError: an Encoder had the embedding, P/D did not get it.
type undeliveredError struct{ err error }

func (e *undeliveredError) Error() string { return e.err.Error() }
func (e *undeliveredError) Unwrap() error { return e.err }

// refusedError: a worker is too busy, or not fit for this request; another may take it.
type refusedError struct {
	url string
	err error
}

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// exhausted turns a missing item that no repair could mend into a 503.
func exhausted(err error, attempts int) error {
	var missing *missingError
	if errors.As(err, &missing) {
		return openai.Unavailable(retryAfter, "images %v could not be delivered to the prefill worker in %d attempts", missing.items, attempts)
	}
	return err
}
