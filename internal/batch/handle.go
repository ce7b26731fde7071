// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"errors"
	"fmt"

	"afterimage/internal/embedding"
)

var (
	// ErrClosed: the scheduler was closed.
	ErrClosed = errors.New("batch: the scheduler is closed")
	// ErrFull: as many requests wait as may.
	ErrFull = errors.New("batch: too many requests wait")
)

// ItemError says that the engine refused the rows of an embedding.
type ItemError struct {
	Item int
	Err  error
}

func (e *ItemError) Error() string { return fmt.Sprintf("item %d: %v", e.Item, e.Err) }

// Unwrap returns what is wrong with the rows.
func (e *ItemError) Unwrap() error { return e.Err }

// Request asks for tokens after a prompt.
type Request struct {
	Prompt []Segment // not empty; the last is text
	// Names are the full names of the embeddings, by item: equal names mean equal rows.
	Names []string
	// Scope is whose prompts this one may share its beginning with: those of the same scope.
	Scope string
	// Cells is what the prompt takes at most, embeddings included.
	Cells int
	// Next picks a token from the logits after the prompt, and then after each token that it picked,
	// until more is false. It is called on the scheduler's goroutine, must not wait, and must not
	// keep logits.
	Next func(logits []float32) (tok int32, more bool, err error)
	// Freed, if not nil, is called once for each embedding that was delivered and is not read any more: when the
	// piece of the prompt with its last use is computed and all embeddings have come. Before that the request may
	// have to give up its place and compute its prompt again; where the memory can run out, that is so until its
	// end. It is called on the scheduler's goroutine and must not wait.
	Freed func(item int)
	// HandOff, if not nil, is called in the place of Next when the prompt is computed, under the same rules, and
	// the request ends with what it returns. The Runner must be an engine.States.
	HandOff func(Computed) error
	// State, if not nil, stands for a prompt that was computed elsewhere. Prompt is empty then, and Cells is that of the state.
	// Data and Logits must stay as they are until Released.
	State *State
}

// Handle is a request in work. Its methods may be called from any goroutine.
type Handle struct {
	s    *Scheduler
	j    *job
	done chan struct{} // closed at the end; guards err
	free chan struct{} // closed when rows are not read any more

	err    error
	cached int // written before the first call of Next
}

// Deliver hands over embedding i. data must stay as it is until Freed or Released.
func (h *Handle) Deliver(i int, layout embedding.Layout, data []byte) {
	it, err := newItem(h.j.prompt.names[i], layout, data)
	if err != nil {
		it = &item{err: &ItemError{i, err}}
	}
	h.set(i, it)
}

// Fail says that embedding i does not come: the request ends with err, unless it needs it no more.
func (h *Handle) Fail(i int, err error) { h.set(i, &item{err: err}) }

func (h *Handle) set(i int, it *item) {
	h.s.post(func() {
		if h.j.over || h.j.prompt.items[i] != nil {
			return
		}
		h.j.prompt.items[i] = it
		if it.err != nil && !h.j.prompt.passed(i) {
			h.s.finish(h.j, it.err)
			return
		}
		h.j.grow()
		h.s.shed(h.j)
	})
}

// Cancel ends the request with cause as soon as the call in work has ended.
func (h *Handle) Cancel(cause error) {
	h.s.post(func() { h.s.finish(h.j, cause) })
}

// Released is closed when nothing that was delivered is read any more: when the prompt is computed, unless the
// memory can run out, so that it may have to be computed again; at the latest when Done is.
func (h *Handle) Released() <-chan struct{} { return h.free }

// Done is closed when the request has ended.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Err returns, after Done, why the request ended early, or nil.
func (h *Handle) Err() error { return h.err }

// Cached returns, from the first call of Next on, how many cells of the prompt were taken over from an
// earlier request.
func (h *Handle) Cached() int { return h.cached }

// job is the scheduler's side of a Handle. Only the scheduler's goroutine touches it.
type job struct {
	id     int
	h      *Handle
	next   func([]float32) (int32, bool, error)
	freed  func(item int) // Request.Freed; may be nil
	prompt prompt

	handOff func(Computed) error
	state   *State // nil once it is not needed any more
	adopted bool   // it came with a state

	scope string
	block int // entries that a lone request computes in one call
	max   int // cells that the prompt takes at most
	over  bool

	seq    int // -1 while it waits for one
	done   int // units that are computed
	part   int // rows of units[done] that are computed
	pos    int // positions and cells that are taken
	cells  int
	served int
	answer []int32 // tokens picked
	fed    int     // tokens of answer that are computed
	ready  int     // see view; look brings them up to date
	least  int
}

// decoding says that the prompt is computed.
func (j *job) decoding() bool { return j.prompt.whole() && j.done == len(j.prompt.units) }

// grow takes note of embeddings that came.
func (j *job) grow() {
	j.prompt.expand()
	j.look()
}

// view is what place and share see of j.
func (j *job) view() view {
	return view{
		id: j.id, held: j.seq >= 0, decode: j.seq >= 0 && j.decoding(), cells: j.cells, prompt: j.max + len(j.answer),
		ready: j.ready, least: j.least, served: j.served,
	}
}

// piece is the next call of a prefill: n units of text, or n rows of one unit.
type piece struct {
	n    int
	rows *rowUnit
}

// nextPiece returns the piece that comes next within allow entries; n is 0 when an embedding is missing.
func (j *job) nextPiece(allow int) piece {
	if j.done == len(j.prompt.units) {
		return piece{}
	}
	if r := j.prompt.units[j.done].rows; r != nil {
		if r.part.NonCausal {
			return piece{r.part.Rows, r}
		}
		return piece{cut(j.block, j.part, r.part.Rows-j.part, allow, true), r}
	}
	from, to, complete := j.prompt.run(j.done)
	return piece{n: cut(j.block, j.done-from, to-j.done, allow, complete)}
}

// look brings ready and least up to date.
func (j *job) look() {
	j.ready, j.least = 0, 0
	if j.state != nil {
		j.ready, j.least = j.state.Cells, j.state.Cells
		return
	}
	if p := j.nextPiece(1); p.n > 0 {
		cells, _ := measure(j.prompt.units[j.done:])
		j.ready, j.least = cells-j.part, p.n
	}
}

// advance notes that a piece was computed.
func (j *job) advance(p piece) {
	j.cells += p.n
	switch {
	case p.rows == nil:
		j.done += p.n
		j.pos += p.n
	case j.part+p.n == p.rows.part.Rows:
		j.done++
		j.part = 0
		j.pos += p.rows.part.Positions
	default:
		j.part += p.n
	}
}

// letGo forgets the rows that were delivered.
func (j *job) letGo() {
	select {
	case <-j.h.free:
		return
	default:
	}
	j.state = nil
	for i := range j.prompt.items {
		j.letGoOf(i)
	}
	close(j.h.free)
}

// letGoOf forgets the rows of embedding i, if it was delivered.
func (j *job) letGoOf(i int) {
	it := j.prompt.items[i]
	if it == nil || it.err != nil || it.free {
		return
	}
	it.free = true
	for _, u := range it.parts {
		if u.rows != nil {
			u.rows.data = nil
		}
	}
	if j.freed != nil {
		j.freed(i)
	}
}
