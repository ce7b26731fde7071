// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// board tells deliver calls what becomes of the images that encode calls are working on. Its zero value is
// usable.
type board struct {
	mu      sync.Mutex // guards what follows
	works   map[embedding.Key]int
	waiting map[embedding.Key]map[chan found]struct{}
}

// found is an object and what it takes to deliver it; without a Buf it will not come. One reference of the
// Buf is its holder's.
type found struct {
	buf    *arena.Buf
	layout embedding.Layout
	source control.Source
}

// begin says that a call works on key, until the returned function is called.
func (b *board) begin(key embedding.Key) (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.works == nil {
		b.works = map[embedding.Key]int{}
	}
	b.works[key]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.works[key]--; b.works[key] == 0 {
			delete(b.works, key)
			b.tellLocked(key, func() found { return found{} })
		}
	}
}

// busy says whether some call works on key.
func (b *board) busy(key embedding.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.works[key] > 0
}

// post gives the item's object to everyone who waits for it.
func (b *board) post(it *item) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tellLocked(it.key, func() found { return found{it.buf.Retain(), it.layout, it.source} })
}

func (b *board) tellLocked(key embedding.Key, f func() found) {
	for ch := range b.waiting[key] {
		ch <- f()
	}
	delete(b.waiting, key)
}

// expect returns where it will be told what becomes of key, once. forget must be called at the end; it gives
// back what was not taken.
func (b *board) expect(key embedding.Key) (ch chan found, forget func()) {
	ch = make(chan found, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[embedding.Key]map[chan found]struct{}{}
	}
	if b.waiting[key] == nil {
		b.waiting[key] = map[chan found]struct{}{}
	}
	b.waiting[key][ch] = struct{}{}
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if all := b.waiting[key]; all != nil {
			delete(all, ch)
			if len(all) == 0 {
				delete(b.waiting, key)
			}
		}
		select {
		case f := <-ch:
			if f.buf != nil {
				f.buf.Release()
			}
		default:
		}
	}
}

// awaitCall is how long a deliver call waits for the encode call that makes its object to arrive: a large file
// may still be on its way. awaitWork bounds the wait for a call that has.
const (
	awaitCall = time.Second
	awaitWork = 2 * time.Minute
)

// errAbsent: a deliver call names an object that is neither here nor being made.
var errAbsent = errors.New("encoder: this image is neither here nor being encoded")

// await finds the item's object: in the cache, or when the call comes about that makes it.
func (e *Encoder) await(ctx context.Context, it *item) error {
	ch, forget := e.board.expect(it.key)
	defer forget()
	// Looked up only now, so that what is cached before it is posted is found in one way or the other.
	if buf, meta, ok := e.cfg.Cache.Get(it.key); ok {
		if len(meta.Layout.Parts) > 0 && meta.Layout.Rows() == it.req.Rows {
			it.buf, it.layout, it.source = buf, meta.Layout, control.SourceLocal
			return nil
		}
		buf.Release()
	}
	patience := time.NewTimer(awaitCall)
	defer patience.Stop()
	for {
		select {
		case f := <-ch:
			if f.buf == nil {
				return errAbsent
			}
			it.buf, it.layout, it.source = f.buf, f.layout, f.source
			if f.source == control.SourceEncoded { // for the request of that call
				it.source = control.SourceJoined
			}
			return nil
		case <-patience.C:
			if !e.board.busy(it.key) {
				return errAbsent
			}
			patience.Reset(awaitWork)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// serveDeliver sends what is here, or on its way, to further grants.
func (e *Encoder) serveDeliver(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	var req control.DeliverRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, control.MaxEncodeLine)).Decode(&req); err != nil {
		refuse(w, bodyFault(fmt.Errorf("deliver body: %w", err)))
		return
	}
	if n := len(req.Items); n < 1 || n > e.cfg.MaxItems {
		refuse(w, badRequest("deliver body: %d items, want 1 to %d", n, e.cfg.MaxItems))
		return
	}
	items := make([]*item, len(req.Items))
	for i, it := range req.Items {
		if it.Identifier == "" || len(it.Grants) == 0 {
			refuse(w, badRequest("deliver body: item %d names no embedding, or nobody to deliver it to", i))
			return
		}
		items[i] = &item{req: it, key: e.cfg.Namespace.Key(it.Identifier)}
	}
	var wg sync.WaitGroup
	for _, it := range items {
		wg.Go(func() {
			it.err = e.await(r.Context(), it)
			it.resolved = time.Since(start)
			if it.err == nil {
				it.err = e.deliver(r.Context(), it)
			}
			it.done = time.Since(start)
		})
	}
	wg.Wait()
	e.reply(w, items)
}
