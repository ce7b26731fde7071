// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"afterimage/internal/openai"
	"afterimage/internal/proxy"
	"afterimage/internal/tracing"
)

// way is the workers that an attempt was given, Encoders excepted.
type way struct {
	decode, prefill *entry // prefill is nil unless the two are split
	consumer        string // where Encoders push to; "" if they do not
	prefillRank     int    // replica that a call must run on; -1 for any
	decodeRank      int
	left            func() // gives up the seat of the prompt
}

// history is what the attempts of one request teach the next one.
type history struct {
	avoid     shunned
	kept      *way  // for an attempt on the same workers
	stage     stage // that failed last
	cause     error // why
	retries   int   // after a 500 of decode
	failovers int
	relayed   bool // images were brought in the latest attempt
	noRelay   bool // none are any more: an attempt with some has failed
}

// again files why an attempt failed and says whether another may succeed. Decode answers 500 when an embedding
// was not delivered, among others: the same workers may do better with fresh transfers. Other failures are
// tried elsewhere.
func (h *history) again(err error, cfg Config) bool {
	var c *callError
	if errors.As(err, new(*exhaustedError)) || !errors.As(err, &c) || c.stage == stageEncode || !c.elsewhere() {
		return false
	}
	h.stage, h.cause = c.stage, err
	if h.relayed && c.status == http.StatusInternalServerError {
		h.noRelay = true // no fault of the relay is to be one of the request
		return true
	}
	if c.stage == stageDecode && c.status == http.StatusInternalServerError {
		h.retries++
		return h.retries <= cfg.DecodeRetries
	}
	h.avoid.add(c)
	h.leave()
	h.failovers++
	return h.failovers <= cfg.Failovers
}

// leave gives up the workers of the latest attempt.
func (h *history) leave() {
	if h.kept != nil {
		h.kept.left()
		h.kept = nil
	}
}

// none is the error while no instance of a role is left for the request.
func (h *history) none(role Role) error {
	if h.cause != nil {
		return &exhaustedError{h.cause}
	}
	return missing(role)
}

// exhaustedError: no instance is left that has not failed the request; the latest failure says why.
type exhaustedError struct{ error }

func (e *exhaustedError) Unwrap() error { return e.error }

// choose picks the workers of an attempt, and keeps them for the next.
func (f *Front) choose(req *request, past *history) (*way, error) {
	if past.kept != nil {
		return past.kept, nil
	}
	now := time.Now()
	w := &way{prefillRank: -1, decodeRank: -1}
	s, by, left := f.reg.sit(PrefillDecode, f.cfg.Routing, req.blocks, past.avoid, now)
	if w.decode = s.e; w.decode == nil {
		if w.decode = f.reg.pick(Decode, f.cfg.Routing, past.avoid, now); w.decode == nil {
			return nil, past.none(Decode)
		}
		s, by, left = f.reg.sit(Prefill, f.cfg.Routing, req.blocks, past.avoid, now)
		if w.prefill = s.e; w.prefill == nil {
			return nil, past.none(Prefill)
		}
	}
	f.metrics.Chosen(by)
	w.left = left
	past.kept = w
	consumer, rank := w.decode, &w.decodeRank
	if w.prefill != nil && !f.statics {
		consumer, rank = w.prefill, &w.prefillRank
	}
	n := s.replica
	if consumer != s.e {
		n = f.reg.replica(consumer)
	}
	if consumer.Replicas > 1 {
		*rank = n
	}
	if len(consumer.Addresses) > 0 {
		w.consumer = consumer.Addresses[n]
	}
	return w, nil
}

// attempt takes a request once through the fleet.
func (f *Front) attempt(ctx context.Context, req *request, out *proxy.Reply, past *history) error {
	w, err := f.choose(req, past)
	if err != nil {
		return err
	}
	if len(req.media) == 0 {
		return f.complete(ctx, req, out, w, openai.Edit{Drop: handles}, func() {})
	}
	b := f.bring(ctx, req, w.consumer, past)
	enc, err := f.encode(ctx, req, w.consumer, b)
	if err == nil {
		req.stage("encode")
		ed := decodeEdit(req.env, req.media, enc.reports, enc.handed, !f.cfg.NoRewrite)
		err = f.complete(ctx, req, out, w, ed, func() { f.learn(req, enc, b) })
	}
	b.End(err == nil)
	return err
}

// complete has the prompt prefilled, if that is a worker's of its own, and decoded. begun is called when the answer
// begins.
func (f *Front) complete(ctx context.Context, req *request, out *proxy.Reply, w *way, ed openai.Edit, begun func()) error {
	if len(req.salt) > 0 { // prompts of tenants share no beginnings either
		ed.Set = append(ed.Set, openai.Field{Name: "cache_salt", Value: openai.AppendString(nil, hex.EncodeToString(req.salt))})
	}
	if w.prefill != nil {
		params, err := f.prefill(ctx, req, w, ed)
		if err != nil {
			return err
		}
		if params != nil {
			ed.Set = append(ed.Set, openai.Field{Name: "kv_transfer_params", Value: params})
		}
		req.stage("prefill")
	}
	return f.decode(ctx, req, out, w, ed, begun)
}

// prefill has the prompt prefilled and returns where decode finds it, nil if the worker does not say.
func (f *Front) prefill(ctx context.Context, req *request, w *way, ed openai.Edit) ([]byte, error) {
	answer, err := f.exchange(ctx, errand{
		stage: stagePrefill, to: w.prefill, path: req.path, id: req.id, rank: w.prefillRank, memory: req.memory,
		body: req.env.Rewrite(prefillEdit(req.env, ed)),
	})
	if err != nil {
		return nil, err
	}
	var got struct {
		Params json.RawMessage `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return nil, badGateway("The answer of the prefill worker is not JSON.")
	}
	if ms, err := members(got.Params); err != nil || len(ms) == 0 {
		return nil, nil
	}
	return got.Params, nil
}

// decode sends the request to its last worker and passes the answer on.
func (f *Front) decode(ctx context.Context, req *request, out *proxy.Reply, w *way, ed openai.Edit, begun func()) (err error) {
	whole := ctx
	ctx, span := f.cfg.Tracer.Start(whole, string(stageDecode), tracing.Client)
	span.Set("worker", w.decode.URL)
	defer func() { span.EndWith(err) }()
	e := errand{
		stage: stageDecode, to: w.decode, path: req.path, id: req.id, rank: w.decodeRank, memory: req.memory,
		body: req.env.Rewrite(ed),
	}
	resp, c, err := f.send(ctx, e)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_, err = read(ctx, resp, e)
		c.end(saidBy(err))
		return err
	}
	begun()
	req.stage("first_byte")
	f.metrics.FirstByte(req.start)
	span.End()
	_, streaming := f.cfg.Tracer.Start(whole, "stream", tracing.Client)
	defer func() { streaming.EndWith(err) }()
	err = out.Pass(resp, c.alive)
	var broken *proxy.BrokenError
	if errors.As(err, &broken) {
		err = callBroken(ctx, stageDecode, w.decode.URL, broken.Err)
		if own, ok := err.(*callError); ok {
			own.begun = true
		}
	}
	c.end(saidBy(err))
	return err
}
