// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// What one call to a Store that takes several objects at once carries: the one that is next, and what waits
// behind it up to these bounds, so that the first is not late.
const (
	batchItems = 16
	batchBytes = 64 << 20
)

// work ends when the queue is closed and empty.
func (p *Publisher) work() {
	for j := range p.queue {
		p.store(p.more(j))
	}
}

// more returns j and what goes with it in one call.
func (p *Publisher) more(j *job) []*job {
	jobs, bytes := []*job{j}, j.buf.Len()
	for p.guard.Batches() && len(jobs) < batchItems && bytes < batchBytes {
		select {
		case next, ok := <-p.queue:
			if !ok {
				return jobs
			}
			jobs, bytes = append(jobs, next), bytes+next.buf.Len()
		default:
			return jobs
		}
	}
	return jobs
}

// store carries publications out: one question, and one PUT of what is absent.
func (p *Publisher) store(jobs []*job) {
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.Timeout)
	defer cancel()
	fit, keys := jobs[:0], make([]embedding.Key, 0, len(jobs))
	for _, j := range jobs {
		if err := p.fit(j); err != nil {
			p.finish(j, err)
			continue
		}
		fit, keys = append(fit, j), append(keys, j.key)
	}
	if len(fit) == 0 {
		return
	}
	// Another worker may have published the same picture meanwhile: a question is cheaper than a PUT.
	states, err := p.guard.Exists(ctx, keys)
	absent, puts := fit[:0], make([]store.Putting, 0, len(fit))
	for i, j := range fit {
		switch {
		case err != nil:
			p.finish(j, p.ended(err))
		case states[i].Present:
			p.finish(j, errExists)
		default:
			absent = append(absent, j)
			puts = append(puts, store.Putting{Key: j.key, Buf: j.buf, Opts: store.PutOptions{Tenant: j.tenant, TTL: p.cfg.TTL}})
		}
	}
	if len(puts) == 0 {
		return
	}
	for i, err := range p.guard.PutAll(ctx, puts) {
		p.finish(absent[i], p.ended(err))
	}
}

// fit refuses what is not to be sent.
func (p *Publisher) fit(j *job) error {
	if p.ctx.Err() != nil {
		return errShutdown
	}
	if err := check(p.cfg.Protocol, j); err != nil {
		return err
	}
	if most := p.cfg.Store.Capabilities().MaxPut; most > 0 && int64(j.buf.Len()) > most {
		return fmt.Errorf("%w: %d bytes, it takes %d", errTooLarge, j.buf.Len(), most)
	}
	return nil
}

// ended says that a call failed since the publisher closes, where it did.
func (p *Publisher) ended(err error) error {
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
