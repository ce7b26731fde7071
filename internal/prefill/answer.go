// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"afterimage/internal/batch"
	"afterimage/internal/control"
	"afterimage/internal/engine"
	"afterimage/internal/openai"
)

// answer is one request in work. Its goroutine writes to the client; the scheduler's picks tokens; one
// per embedding waits for it.
type answer struct {
	p       *Prefill
	opts    *openai.Options
	prompts []promptOf
	entry   *prepared
	id      string
	text    bool   // it is one of the completions API
	scope   string // of what its prompt may share
	start   time.Time
	stream  *openai.ChunkWriter // set once the first byte is about to go out
	usage   openai.Usage
	choices []*choice
	out     outbox         // what the choices add
	failed  chan error     // the first failure of a choice
	reason  string         // how the last choice ended
	watch   sync.WaitGroup // one per choice that was submitted

	mu      sync.Mutex // guards the fields below
	held    []held     // embeddings that are here and may still be needed, by item
	readers []int      // choices that may still need each
	came    []control.Arrival
	handles []*batch.Handle
}

// promptOf is a prompt and how many tokens and rows it has.
type promptOf struct {
	*prompt
	length int
}

func newAnswer(p *Prefill, opts *openai.Options, prompts []promptOf, entry *prepared, start time.Time, id string) *answer {
	return &answer{
		p: p, opts: opts, prompts: prompts, entry: entry, start: start, id: id,
		held: make([]held, len(entry.items)), out: newOutbox(), failed: make(chan error, 1),
	}
}

// run takes the request from its prompt to its last byte. When it returns, nothing of the request is in
// use any more.
func (a *answer) run(ctx context.Context, w http.ResponseWriter) error {
	defer a.closeChoices()
	for _, pr := range a.prompts {
		a.usage.PromptTokens += pr.length
		if err := a.newChoices(pr); err != nil {
			return err
		}
	}
	return a.compute(ctx, len(a.choices), a.begun, func(ctx context.Context) error { return a.write(ctx, w) })
}

// begun submits the choices that begin with their prompts; the others begin where the first of their prompt has come to.
func (a *answer) begun(ctx context.Context) error {
	if err := a.take(ctx); err != nil {
		return err
	}
	for _, c := range a.choices {
		if c.at > 0 {
			continue
		}
		if err := a.submit(c); err != nil {
			return err
		}
	}
	return nil
}

// compute has so many choices submitted, delivers embeddings to them as they come, and lets follow what uses their
// results. When it returns, nothing of the request is in use any more.
func (a *answer) compute(ctx context.Context, choices int, submit, follow func(context.Context) error) error {
	a.readers = slices.Repeat([]int{choices}, len(a.entry.items))
	ctx, cancel := context.WithCancel(ctx)
	var waits sync.WaitGroup
	defer func() {
		cancel()
		waits.Wait()
		a.end(context.Canceled)
		a.release()
	}()
	if err := submit(ctx); err != nil {
		return err
	}
	for i := range a.entry.items {
		waits.Go(func() { a.await(ctx, i) })
	}
	return follow(ctx)
}

// request is a prompt as the scheduler wants it.
func (a *answer) request(pr promptOf) batch.Request {
	if st := a.entry.adopted; st != nil {
		return batch.Request{Cells: st.state.Cells, State: st.state}
	}
	r := batch.Request{Cells: pr.length, Scope: a.scope, Freed: a.freed}
	for _, s := range pr.segments {
		seg := batch.Segment{Tokens: s.tokens, Item: -1}
		if s.item >= 0 {
			seg.Item = a.entry.uses[s.item]
		}
		r.Prompt = append(r.Prompt, seg)
	}
	for _, it := range a.entry.items {
		r.Names = append(r.Names, string(it.Key))
	}
	return r
}

// submit hands a choice to the scheduler, with the embeddings that are there.
func (a *answer) submit(c *choice) error {
	r := a.request(c.prompt)
	r.Next, r.HandOff = c.next, c.handOff
	h, err := a.p.sched.Submit(r)
	switch {
	case errors.Is(err, batch.ErrFull):
		return openai.TooManyRequests(retryAfter, "more than %d requests wait for this worker", a.p.cfg.MaxWaiting)
	case errors.Is(err, batch.ErrClosed):
		return openai.Unavailable(retryAfter, "this worker is stopping")
	case err != nil:
		return openai.BadRequest("messages", "%v", err)
	}
	c.handle = h
	a.watch.Go(func() {
		<-h.Done()
		if err := h.Err(); err != nil {
			select {
			case a.failed <- err:
			default:
			}
		}
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handles = append(a.handles, h)
	for i, held := range a.held {
		if held.buf != nil {
			h.Deliver(i, held.meta.Layout, held.payload(a.p.cfg.Protocol))
		}
	}
	return nil
}

// await waits for embedding i and delivers it.
func (a *answer) await(ctx context.Context, i int) {
	it, err := a.item(ctx, i)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[i] = it
	for _, h := range a.handles {
		if err != nil {
			h.Fail(i, err)
		} else {
			h.Deliver(i, it.meta.Layout, it.payload(a.p.cfg.Protocol))
		}
	}
}

// end ends what is still in work, and waits for it.
func (a *answer) end(cause error) {
	for _, h := range a.handles {
		h.Cancel(cause)
	}
	a.watch.Wait()
}

func (a *answer) closeChoices() {
	for _, c := range a.choices {
		c.sampler.Close()
	}
}

// release lets go of the embeddings.
func (a *answer) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, h := range a.held {
		if h.buf != nil {
			h.buf.Release()
			a.held[i] = held{}
		}
	}
	a.entry.adopted.cancel()
	a.p.cfg.Residents.settle()
}

// freed is told that one choice will not look at embedding i again. After the last choice nobody will.
func (a *answer) freed(i int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.readers[i]--; a.readers[i] > 0 || a.held[i].buf == nil {
		return
	}
	a.held[i].buf.Release()
	a.held[i] = held{}
	a.p.cfg.Residents.settle()
}

// fault words the end of a request that the scheduler ended early.
func (a *answer) fault(err error) error {
	var bad *batch.ItemError
	if errors.As(err, &bad) { // the engine looked before native code did
		a.p.cfg.Residents.remove(a.entry.items[bad.Item].Key)
		missing := &missingError{items: []int{bad.Item}, cause: bad.Err}
		if errors.Is(bad.Err, engine.ErrBadRows) {
			a.p.distrust(a.entry.items[bad.Item].Key, bad.Err)
			missing.wrong = missing.items
		}
		return missing
	}
	switch {
	case errors.Is(err, batch.ErrClosed):
		return openai.Unavailable(retryAfter, "this worker is stopping")
	case errors.Is(err, engine.ErrFormSlow): // the schema's doing: another worker would fare no better
		return openai.BadRequest("response_format", "response_format: %v", err)
	}
	return err
}
