// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/openai"
)

// request is one client's call on its way through the gateway.
type request struct {
	id     string // the client's name for it, or ours
	scan   *openai.Request
	images []*image
	uses   []int
	body   []byte // what P/D gets
	forced string // Encoder that the client asked for; "" leaves it to routing
	trace  *trace
	start  time.Time
}

// serveChat answers POST /v1/chat/completions.
func (g *Gateway) serveChat(w http.ResponseWriter, r *http.Request) {
	req := &request{id: requestID(r.Header.Get(control.HeaderRequestID)), start: time.Now(), forced: r.Header.Get(control.HeaderEncoder)}
	w.Header().Set(control.HeaderRequestID, req.id)
	req.trace = g.traces.begin(req.id)
	g.metrics.running.Inc()
	out := &reply{w: w, control: http.NewResponseController(w), timeout: g.cfg.WriteTimeout}
	err := g.serve(r, w, req, out)
	g.metrics.running.Dec()
	status := g.finish(out, err)
	req.trace.end(status, err)
	g.metrics.requests.WithLabelValues(strconv.Itoa(status)).Inc()
	g.metrics.duration.Observe(time.Since(req.start).Seconds())
}

// finish reports err in the shape that still fits and returns the status that the client saw; 499
// stands for a client that left.
func (g *Gateway) finish(out *reply, err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, context.Canceled):
		return 499
	case out.started:
		g.metrics.cut.Inc()
		out.fail(err)
		return http.StatusBadGateway
	}
	e := openai.AsError(clientError(err))
	if e.Status >= 500 {
		g.cfg.Logger.Warn("request failed", "status", e.Status, "err", err)
	}
	openai.WriteError(out.w, e)
	return e.Status
}

// requestID takes over a client's name for its request when it is harmless, and invents one else.
func requestID(s string) string {
	ok := s != "" && len(s) <= 128
	for i := 0; ok && i < len(s); i++ {
		ok = s[i] > ' ' && s[i] < 0x7f && s[i] != '/' && s[i] != '"' && s[i] != '\\'
	}
	if ok {
		return s
	}
	return randomHex(16)
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// serve reads and checks the request, then attempts it until an attempt ends well or for good.
func (g *Gateway) serve(r *http.Request, w http.ResponseWriter, req *request, out *reply) error {
	if err := g.read(r, w, req); err != nil {
		return err
	}
	avoid := map[string]bool{}
	force := map[int]bool{}
	for n := 0; ; n++ {
		req.trace.attempt()
		err := g.attempt(r.Context(), req, out, avoid, force)
		if err == nil || out.started || r.Context().Err() != nil || n == g.cfg.Repairs {
			return g.exhausted(err, n, out)
		}
		if !repairable(err, avoid, force) {
			return err
		}
		g.metrics.repairs.Inc()
		g.cfg.Logger.Info("repair", "request", req.id, "attempt", n+1, "cause", err)
	}
}

// exhausted turns a missing item that no repair could mend into a 503.
func (g *Gateway) exhausted(err error, n int, out *reply) error {
	var missing *missingError
	if errors.As(err, &missing) && !out.started {
		return openai.Unavailable(retryAfter, "images %v could not be delivered to the prefill worker in %d attempts", missing.items, n+1)
	}
	return err
}

// repairable says whether another attempt may succeed, and notes what it must do differently.
func repairable(err error, avoid map[string]bool, force map[int]bool) bool {
	var missing *missingError
	var broken *brokenError
	var refused *refusedError
	switch {
	case errors.As(err, &missing):
		for _, i := range missing.items {
			force[i] = true
		}
		return true
	case errors.As(err, &broken):
		avoid[broken.url] = true
		return true
	case errors.As(err, &refused):
		avoid[refused.url] = true
		return true
	}
	return false
}

// read takes the body in, finds the media parts and loads their files.
func (g *Gateway) read(r *http.Request, w http.ResponseWriter, req *request) error {
	body, err := readBody(http.MaxBytesReader(w, r.Body, g.cfg.MaxBodyBytes), r.ContentLength, g.cfg.MaxBodyBytes)
	if err != nil {
		return err
	}
	req.scan, err = openai.Scan(body, openai.ScanLimits{MaxImages: g.cfg.MaxImages})
	if err != nil {
		return err
	}
	req.trace.stage("read")
	snap := g.fleet.snapshot()
	if err := snap.checkModel(req.scan.Model); err != nil {
		return err
	}
	if len(req.scan.Media) == 0 {
		req.body = body
		return nil
	}
	if err := checkForced(snap, req.forced); err != nil {
		return err
	}
	if req.images, req.uses, err = g.loadImages(r.Context(), req.scan.Media); err != nil {
		return err
	}
	req.body = req.scan.Splice(func(i int) []byte {
		return fmt.Appendf(nil, `{"type":%q,"index":%d}`, control.ItemPartType, i)
	})
	g.metrics.images.Add(float64(len(req.uses)))
	req.trace.stage("media")
	return nil
}

// readBody reads a body of at most limit bytes into one buffer of the right size.
func readBody(r io.Reader, length, limit int64) ([]byte, error) {
	if length > limit {
		return nil, openai.TooLarge(limit)
	}
	var body []byte
	var err error
	if length >= 0 {
		body = make([]byte, length)
		_, err = io.ReadFull(r, body)
	} else {
		body, err = io.ReadAll(r)
	}
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return nil, openai.TooLarge(limit)
	case err != nil:
		return nil, openai.BadRequest("", "the body could not be read: %v", err)
	}
	return body, nil
}

// missingError: P/D lacks items of the attempt.
type missingError struct{ items []int }

func (e *missingError) Error() string { return fmt.Sprintf("items %v are missing", e.items) }

// refusedError: a worker is too busy, or not fit for this request; another may take it.
type refusedError struct {
	url string
	err error
}

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }
