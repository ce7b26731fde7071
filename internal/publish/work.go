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
	if most := p.cfg.Store.Capabilities().MaxPut; most > 0 && int64(j.buf.Len()) > most {
		return fmt.Errorf("%w: %d bytes, it takes %d", errTooLarge, j.buf.Len(), most)
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
		err = p.cfg.Store.Put(ctx, j.key, j.buf, store.PutOptions{Tenant: j.tenant, TTL: p.cfg.TTL})
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

// finish gives back what the job held, and counts. The publication that ends the worker keeps its
// charge: its memory is not free, and nothing else is to be published.
func (p *Publisher) finish(j *job, err error) {
	o := outcomeOf(err)
	p.mu.Lock()
	if errors.Is(err, store.ErrMustExit) && p.fatal == nil {
		p.fatal = err
	} else {
		delete(p.pending, j.key)
		p.budget.giveBack(j.buf)
	}
	p.cfg.Metrics.pending(len(p.pending), p.budget.bytes)
	p.mu.Unlock()
	j.buf.Release()
	p.cfg.Metrics.count(o)
	if o == Stored || o == Exists {
		p.log.well()
	} else {
		p.log.drop(o, err)
	}
	close(j.done)
}
