// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"strconv"

	"afterimage/internal/embedding"
)

// Part is a piece of a prompt that is at hand: text, or an embedding.
type Part struct {
	Tokens []int32
	Layout embedding.Layout // with Data
	Data   []byte
	Name   string // of the embedding; "" gives it one that no other part has
}

// Ask submits a prompt that is at hand as a whole and waits for its end.
func (s *Scheduler) Ask(ctx context.Context, parts []Part, next func(logits []float32) (int32, bool, error)) error {
	return s.AskFor(ctx, Request{Next: next}, parts)
}

// AskFor is Ask for a request whose prompt is parts, which may be none for one with a state.
func (s *Scheduler) AskFor(ctx context.Context, r Request, parts []Part) error {
	for i, p := range parts {
		if p.Data == nil {
			r.Prompt = append(r.Prompt, Segment{Tokens: p.Tokens, Item: -1})
			r.Cells += len(p.Tokens)
			continue
		}
		name := p.Name
		if name == "" {
			name = strconv.Itoa(i) + "@" + strconv.FormatInt(s.unique.Add(1), 10)
		}
		r.Prompt = append(r.Prompt, Segment{Item: len(r.Names)})
		r.Names = append(r.Names, name)
		r.Cells += p.Layout.KVCells()
	}
	h, err := s.Submit(r)
	if err != nil {
		return err
	}
	i := 0
	for _, p := range parts {
		if p.Data != nil {
			h.Deliver(i, p.Layout, p.Data)
			i++
		}
	}
	select {
	case <-h.Done():
	case <-ctx.Done():
		h.Cancel(context.Cause(ctx))
		<-h.Done()
	}
	return h.Err()
}
