// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// work ends when the queue is closed and empty.
func (p *Publisher) work() {
	for j := range p.queue {
		p.finish(j, p.store(j))
	}
}

// store carries one publication out.
func (p *Publisher) store(j *job) error {
	if p.ctx.Err() != nil {
		return errShutdown
	}
	if err := check(p.cfg.Protocol, j); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.Timeout)
	defer cancel()
	// Another worker may have published the same picture meanwhile: a question is cheaper than a PUT.
	states, err := p.cfg.Store.Exists(ctx, []embedding.Key{j.key})
	switch {
	case err != nil:
	case len(states) != 1:
		err = fmt.Errorf("%w: %d answers to 1 key", store.ErrUnavailable, len(states))
	case states[0].Present:
		return errExists
	default:
		err = p.cfg.Store.Put(ctx, j.key, j.buf, store.PutOptions{})
	}
	if err != nil && p.ctx.Err() != nil && !errors.Is(err, store.ErrUnconfirmed) {
		return errShutdown
	}
	return err
}

// check refuses what must not reach other workers: an object that is not what meta says, or values
// that no model can use.
func check(proto embedding.Protocol, j *job) error {
	obj, off := j.buf.Bytes(), proto.PayloadOffset(j.meta.Layout)
	n := j.meta.PayloadBytes()
	if j.meta.Rows <= 0 || j.meta.Cols <= 0 || n <= 0 {
		return fmt.Errorf("%w: %d x %d", errEmpty, j.meta.Rows, j.meta.Cols)
	}
	if len(obj) != off+n {
		return fmt.Errorf("%w: object of %d bytes, want %d + %d", embedding.ErrMalformed, len(obj), off, n)
	}
	return embedding.CheckFinite(obj[off:], j.meta.DType)
}

// finish gives back what the job held, and counts.
func (p *Publisher) finish(j *job, err error) {
	o := outcomeOf(err)
	if o == Unconfirmed {
		p.cfg.Metrics.stranded.Add(float64(j.buf.Len()))
	} else {
		n := int64(j.buf.Len())
		j.buf.Release()
		p.uncharge(j.key, n)
	}
	p.cfg.Metrics.count(o)
	p.note(o, err)
	close(j.done)
}

// uncharge makes room for other publications.
func (p *Publisher) uncharge(key embedding.Key, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pending, key)
	p.bytes -= n
	p.cfg.Metrics.pending(len(p.pending), p.bytes)
}

// note logs when the Store starts to fail and when it is well again, and every object that was not
// fit to be stored.
func (p *Publisher) note(o Outcome, err error) {
	switch o {
	case Empty, NotFinite, Malformed:
		p.cfg.Logger.Error("publish: object refused", "reason", o, "error", err)
	case Rejected, Unavailable, Unconfirmed:
		if !p.failing.Swap(true) {
			p.cfg.Logger.Warn("publish: Store fails, embeddings stay local", "error", err)
		}
	case Stored, Exists:
		if p.failing.Swap(false) {
			p.cfg.Logger.Info("publish: Store is back")
		}
	}
}
