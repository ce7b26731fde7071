// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"slices"
	"sync"

	"afterimage/internal/embedding"
)

// errUnwound: the function of a flight panicked, or ended its goroutine.
var errUnwound = errors.New("resolve: the call that all waited for did not return")

// Flight lets callers of the same key share one result. Its zero value is usable.
//
// The first caller takes the turn and runs its function with its own context; the others wait, each
// as long as its own context lives. A result goes to all of them. When the one whose turn it is was
// cancelled, the turn passes to the next in line, and nobody else notices. When it fails or panics,
// the next in line tries once more; a second failure in a row is everybody's answer.
//
// A shared background call, detached from all contexts, would spare the restart after a cancel; but
// then nobody's deadline bounds it, and work goes on that nobody wants.
type Flight[V any] struct {
	// Share makes the result that another caller gets, for instance by taking a reference; nil hands
	// out the value itself. It is called with a lock held and must not call back.
	Share func(V) V

	mu    sync.Mutex
	lines map[embedding.Key]*line[V]
}

// line is the queue of one key. It exists while somebody has the turn.
type line[V any] struct {
	waiting []chan outcome[V] // in order of arrival; each of capacity 1
	failed  bool              // the last turn failed by itself
}

// outcome is what a waiter is told: it is your turn, or this is the answer.
type outcome[V any] struct {
	turn bool
	v    V
	err  error
}

// Do returns the result of fn for key, run by this caller or by another at the same time; led tells
// which. fn must return soon after its context ends.
func (f *Flight[V]) Do(ctx context.Context, key embedding.Key, fn func(context.Context) (V, error)) (v V, led bool, err error) {
	if err := ctx.Err(); err != nil {
		return v, false, err
	}
	ch := f.join(key)
	if ch == nil {
		return f.lead(ctx, key, fn)
	}
	select {
	case o := <-ch:
		return f.told(ctx, key, fn, o)
	case <-ctx.Done():
	}
	if f.leave(key, ch) {
		return v, false, ctx.Err()
	}
	// The outcome came at the same moment. An answer is taken, since it may hold a reference; a turn is
	// taken too, and passed on at once as fn sees an ended context.
	return f.told(ctx, key, fn, <-ch)
}

func (f *Flight[V]) told(ctx context.Context, key embedding.Key, fn func(context.Context) (V, error), o outcome[V]) (V, bool, error) {
	if o.turn {
		return f.lead(ctx, key, fn)
	}
	return o.v, false, o.err
}

// join takes the turn (nil) or a place in line.
func (f *Flight[V]) join(key embedding.Key) chan outcome[V] {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, busy := f.lines[key]
	if !busy {
		if f.lines == nil {
			f.lines = make(map[embedding.Key]*line[V])
		}
		f.lines[key] = &line[V]{}
		return nil
	}
	ch := make(chan outcome[V], 1)
	l.waiting = append(l.waiting, ch)
	return ch
}

// leave gives up a place in line; false means that the outcome is in ch already.
func (f *Flight[V]) leave(key embedding.Key, ch chan outcome[V]) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, ok := f.lines[key]
	if !ok {
		return false
	}
	i := slices.Index(l.waiting, ch)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// lead runs fn and ends the turn, however fn ends.
func (f *Flight[V]) lead(ctx context.Context, key embedding.Key, fn func(context.Context) (V, error)) (v V, led bool, err error) {
	err = errUnwound
	defer func() { f.end(ctx, key, v, err) }()
	if err = ctx.Err(); err != nil {
		return v, true, err
	}
	err = errUnwound
	v, err = fn(ctx)
	return v, true, err
}

// end passes the turn or the answer on.
func (f *Flight[V]) end(ctx context.Context, key embedding.Key, v V, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lines[key]
	cancelled := err != nil && ctx.Err() != nil
	retry := cancelled || err != nil && !l.failed
	if retry && len(l.waiting) > 0 {
		l.failed = !cancelled
		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		next <- outcome[V]{turn: true}
		return
	}
	delete(f.lines, key)
	for _, ch := range l.waiting {
		o := outcome[V]{err: err}
		if err == nil {
			o.v = v
			if f.Share != nil {
				o.v = f.Share(v)
			}
		}
		ch <- o
	}
}
