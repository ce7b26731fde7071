// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"fmt"
	"sync"

	"afterimage/internal/control"
	"afterimage/internal/resolve"
)

// load reads from the Store in the background what it is known to have.
func (p *Prefill) load(items []control.PrepareItem, stored []bool, out []supply) {
	var which []int
	for i := range items {
		if out[i].open() && stored[i] {
			which = append(which, i)
		}
	}
	if len(which) == 0 {
		return
	}
	total := int64(0)
	for _, i := range which {
		total += int64(items[i].Bytes)
	}
	p.loading.Add(total)
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	all := &loads{left: len(which), stop: cancel, done: make(chan struct{})}
	for n, i := range which {
		out[i].load = &load{all: all, n: n, bytes: items[i].Bytes}
	}
	p.background.Go(func() {
		defer cancel()
		defer p.loading.Add(-total)
		all.finish(p.resolver.Resolve(ctx, p.wants(items, which, true)))
	})
}

// loads is one background read of several embeddings.
type loads struct {
	stop context.CancelFunc
	done chan struct{} // closed when the read has ended

	mu   sync.Mutex // guards the fields below
	left int        // those that somebody still waits for
	gots []resolve.Result
}

// load is one embedding of a background read.
type load struct {
	all   *loads
	n     int
	bytes int
	taken bool // by wait or cancel
}

// finish hands out the results; what nobody waits for is given back.
func (l *loads) finish(gots []resolve.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gots = gots
	close(l.done)
	if l.left == 0 {
		l.releaseLocked()
	}
}

func (l *loads) releaseLocked() {
	for i := range l.gots {
		if b := l.gots[i].Buf; b != nil {
			b.Release()
			l.gots[i].Buf = nil
		}
	}
}

// wait returns the embedding once it is read.
func (l *load) wait(ctx context.Context) (held, error) {
	select {
	case <-l.all.done:
	case <-ctx.Done():
		return held{}, fmt.Errorf("reading from the Store: %w", context.Cause(ctx))
	}
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	res := &l.all.gots[l.n]
	if res.Buf == nil {
		if res.Err != nil {
			return held{}, res.Err
		}
		return held{}, fmt.Errorf("the Store has it no longer (%s)", res.Reason)
	}
	h := held{buf: res.Buf, meta: res.Meta, known: taken(res.Buf)}
	res.Buf = nil
	return h, nil
}

// cancel gives the embedding up. The read ends when all of its embeddings are given up.
func (l *load) cancel() {
	if l.taken {
		return
	}
	l.taken = true
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	if l.all.left--; l.all.left > 0 {
		return
	}
	l.all.stop()
	l.all.releaseLocked()
}
