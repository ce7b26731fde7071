// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/control"
	"afterimage/internal/media"
	"afterimage/internal/openai"
)

var testWorker = worker{URL: "http://w", Seen: control.Announcement{Name: "w-0"}, Known: true, Up: true}

func shaped(msg string) []byte {
	return []byte(`{"error":{"message":"` + msg + `","type":"T","param":"p"}}`)
}

// TestWorkersAnswers: which answers end a request, and what its client sees.
func TestWorkersAnswers(t *testing.T) {
	f := func(status int, body []byte, final bool, sees int, words string) {
		t.Helper()
		err := answered(testWorker, status, body)
		var answer *workerError
		if !errors.As(err, &answer) || answer.final() != final {
			t.Errorf("%d %s: final %v, want %v", status, body, answer.final(), final)
		}
		if retry := retryElsewhere(testWorker, err); errors.As(retry, new(*refusedError)) == final {
			t.Errorf("%d %s: another worker would be asked: %v", status, body, !final)
		}
		e := openai.AsError(clientError(err))
		if e.Status != sees || !strings.Contains(e.Message, words) {
			t.Errorf("%d %s: the client sees %d %q, want %d %q", status, body, e.Status, e.Message, sees, words)
		}
		if wait := e.RetryAfter > 0; wait != (sees == 503 || sees == 429) {
			t.Errorf("%d %s: Retry-After %v", status, body, e.RetryAfter)
		}
	}
	f(400, shaped("m"), true, 400, "m")
	f(404, shaped("m"), true, 404, "m")
	f(413, shaped("m"), true, 413, "m")
	f(409, shaped("m"), false, 409, "m")
	f(422, shaped("m"), false, 422, "m")
	f(429, shaped("m"), false, 429, "m")
	f(499, shaped("m"), false, 503, "m")
	f(500, shaped("m"), false, 500, "m")
	f(503, shaped("m"), false, 503, "m")
	f(404, []byte("404 page not found\n"), false, 503, "w-0 answered 404: 404 page not found")
	f(400, []byte(`{"detail":"x"}`), false, 503, "w-0 answered 400")
	f(502, []byte(strings.Repeat("\xff", 1000)), false, 503, "w-0 answered 502")
	f(200, shaped("m"), false, 503, "w-0 answered 200")
	f(301, nil, false, 503, "w-0 answered 301")
}

func TestClientError(t *testing.T) {
	f := func(err error, status int) {
		t.Helper()
		if e := openai.AsError(clientError(err)); e.Status != status {
			t.Errorf("%v: %d, want %d", err, e.Status, status)
		}
	}
	f(&brokenError{worker: "w", err: errors.New("reset")}, 503)
	f(fmt.Errorf("x: %w", context.DeadlineExceeded), 503)
	f(&refusedError{url: "u", err: &workerError{status: 429, shaped: true, body: openai.Error{Status: 429, Message: "m"}}}, 429)
	f(&undeliveredError{&workerError{status: 503, shaped: true, body: openai.Error{Status: 503, Message: "m"}}}, 503)
	f(nonsense(testWorker, "said nothing"), 503)
	f(errors.New("anything else"), 500)
}

// TestBroken: our own reasons are kept; what happened on the way names the worker and has it probed.
func TestBroken(t *testing.T) {
	newGateway := func() *Gateway {
		g := New(Config{Encoders: []string{"http://w"}, Registry: prometheus.NewRegistry()})
		g.fleet.state.Encoders[0] = testWorker
		return g
	}
	own := errors.New("an image failed")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(own)
	g := newGateway()
	if err := g.broken(ctx, testWorker, errors.New("x")); err != own || !g.fleet.snapshot().Encoders[0].Up {
		t.Errorf("ended by us: %v, up %v", err, g.fleet.snapshot().Encoders[0].Up)
	}
	late, stop := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer stop()
	for name, ctx := range map[string]context.Context{"reset": t.Context(), "too late": late} {
		g := newGateway()
		err := g.broken(ctx, testWorker, errors.New("reset"))
		var broken *brokenError
		if !errors.As(err, &broken) || broken.url != "http://w" || g.fleet.snapshot().Encoders[0].Up || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, up %v", name, err, g.fleet.snapshot().Encoders[0].Up)
		}
	}
}

// TestEncodeError: the caller's faults name the part; the rest is for another worker.
func TestEncodeError(t *testing.T) {
	part := openai.MediaPart{Path: "messages[1].content[2]"}
	f := func(e control.Error, want any) {
		t.Helper()
		err := encodeError(testWorker, part, &e)
		if !errors.As(err, want) {
			t.Errorf("%+v: got %T %v, want %T", e, err, err, want)
		}
		if own := new(*openai.Error); errors.As(err, own) && ((*own).Param != part.Path || !strings.Contains((*own).Message, part.Path)) {
			t.Errorf("%+v: %+v does not name the part", e, *own)
		}
	}
	f(control.Error{Status: 400, Message: "cut off"}, new(*openai.Error))
	f(control.Error{Status: 413, Message: "large"}, new(*openai.Error))
	f(control.Error{Status: 429}, new(*refusedError))
	f(control.Error{Status: 499}, new(*refusedError))
	f(control.Error{Status: 500}, new(*refusedError))
	f(control.Error{Status: 503}, new(*refusedError))
	f(control.Error{Status: 503, Type: control.TypeDelivery}, new(*undeliveredError))
	f(control.Error{}, new(*refusedError))
}

func TestPartError(t *testing.T) {
	part := openai.MediaPart{Path: "messages[0].content[0]"}
	if err := partError(part, fmt.Errorf("fetch: %w", context.Canceled)); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that left: %v", err)
	}
	if e := openai.AsError(partError(part, media.ErrClosed)); e.Status != 503 || e.RetryAfter == 0 {
		t.Errorf("a gateway that stops: %+v", e)
	}
	if e := openai.AsError(partError(part, &media.Error{Kind: media.ErrFetch, Msg: "no"})); e.Status != http.StatusBadRequest || e.Param != part.Path {
		t.Errorf("a bad image: %+v", e)
	}
}

func TestHistory(t *testing.T) {
	a, b := worker{URL: "a", Up: true, Seen: control.Announcement{Name: "a"}}, worker{URL: "b", Up: true, Seen: control.Announcement{Name: "b"}}
	pick := func(h *history, ws ...worker) string {
		s := &snapshot{Prefills: ws}
		w, _, err := newChooser("", func(string) {}).prefill(s, &request{}, "k", h)
		if err != nil {
			return err.Error()
		}
		return w.URL
	}
	h := newHistory()
	if h.note(openai.BadRequest("", "x")) || h.note(errors.New("x")) {
		t.Error("a final error is repaired")
	}
	if !h.note(&brokenError{url: "a"}) || pick(h, a, b) != "b" {
		t.Errorf("a broke: %s is next", pick(h, a, b))
	}
	if got := pick(h, a); got != "a" {
		t.Errorf("a broke and is back, alone: %s", got)
	}
	down := a
	down.Up, down.Why = false, "gone"
	if got := pick(h, down); !strings.Contains(got, "gone") {
		t.Errorf("a broke and is down: %s", got)
	}
	if !h.note(&refusedError{url: "b", err: errors.New("busy")}) || pick(h, a, b) != "a" || pick(h, b) != errNoneLeft.Error() {
		t.Errorf("b refused: %s, alone %s", pick(h, a, b), pick(h, b))
	}
	h.note(&brokenError{url: "b"})
	if got := pick(h, b); got != errNoneLeft.Error() {
		t.Errorf("b refused, then broke: %s", got)
	}
	if !h.note(&missingError{items: []int{2}}) || !h.forces(2) || h.forces(0) {
		t.Errorf("force %v", h.force)
	}
	if !h.note(&undeliveredError{errors.New("x")}) || len(h.workers) != 2 {
		t.Errorf("workers %v", h.workers)
	}
}
