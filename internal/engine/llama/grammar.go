// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"

	"afterimage/internal/engine"
)

// constraint is a grammar sampler of the library. Its mutex lets Close come from another goroutine than
// the one that picks.
type constraint struct {
	t    *Text
	data []cTokenData

	mu  sync.Mutex // guards ptr
	ptr uintptr    // 0 once it is closed
}

// Constrain implements engine.Text. The grammar must come from package grammar: the library's parser is
// not made for hostile text.
func (t *Text) Constrain(grammar string) (engine.Constraint, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.leave()
	if grammar == "" { // the library takes it for none
		return nil, errors.New("llama: the grammar is empty")
	}
	mark := t.model.lib.log.mark()
	ptr := t.model.lib.c.grammarNew(t.model.vocab, grammar, "root")
	if ptr == 0 {
		return nil, fmt.Errorf("llama: the library cannot use the grammar: %s", t.model.lib.log.explain(mark))
	}
	return &constraint{t: t, ptr: ptr}, nil
}

// with calls f while neither the constraint nor the engine is closed.
func (c *constraint) with(f func()) {
	if c.t.enter() != nil {
		return
	}
	defer c.t.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ptr != 0 {
		f()
	}
}

// apply has the library look at c.data.
func (c *constraint) apply() {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&c.data[0])
	a := &cTokenArray{data: &c.data[0], size: uint64(len(c.data)), selected: -1}
	c.t.model.lib.c.samplerApply(c.ptr, a)
}

// Allows implements engine.Constraint.
func (c *constraint) Allows(tok int32) (ok bool) {
	if tok < 0 || tok >= c.t.model.vocN {
		return false
	}
	c.with(func() {
		c.data = append(c.data[:0], cTokenData{id: tok})
		c.apply()
		ok = !math.IsInf(float64(c.data[0].logit), -1)
	})
	return ok
}

// Mask implements engine.Constraint.
func (c *constraint) Mask(logits []float32) {
	c.with(func() {
		c.data = c.data[:0]
		for i, v := range logits {
			c.data = append(c.data, cTokenData{id: int32(i), logit: v})
		}
		c.apply()
		for _, d := range c.data {
			logits[d.id] = d.logit
		}
	})
}

// Accept implements engine.Constraint. The library ends the process when a token that ends an answer
// comes too early, so those are kept from it.
func (c *constraint) Accept(tok int32) {
	if c.t.EndOfGeneration(tok) || !c.Allows(tok) {
		return
	}
	c.with(func() { c.t.model.lib.c.samplerAccept(c.ptr, tok) })
}

// Close implements engine.Constraint.
func (c *constraint) Close() {
	c.with(func() {
		c.t.model.lib.c.samplerFree(c.ptr)
		c.ptr = 0
	})
}
