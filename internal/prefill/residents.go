// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"sync"

	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// Residents are embeddings that outlive the request they came for, so that the next one that shows the
// same picture takes them from here. They lie in the memory that grants are made from, and leave as soon
// as a grant lacks it. An embedding that a request uses is pinned by the request's own reference.
//
// The zero value, and nil, keep nothing. Methods may be called from any goroutine.
type Residents struct {
	// Cache bounds them in bytes; its keys are whole Store keys, with the full identifier.
	Cache *cache.Cache

	mu   sync.Mutex // guards owed; the cache's lock is not taken under it
	owed int64      // bytes that the request at the head of the line lacks and that have not come back yet
}

func (r *Residents) on() bool { return r != nil && r.Cache != nil }

// Evict makes room for a grant; it is what transport.ReceiverConfig.Evict wants. What it cannot free at
// once, since requests use it, leaves when they let go and say so with settle.
func (r *Residents) Evict(bytes int64) (freed int64) {
	if !r.on() {
		return 0
	}
	r.mu.Lock()
	r.owed = bytes // before the look, so that who lets go after it sees the debt
	r.mu.Unlock()
	return r.pay(bytes)
}

func (r *Residents) pay(bytes int64) (freed int64) {
	if freed = r.Cache.Evict(bytes); freed >= bytes {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.owed == bytes {
			r.owed = 0
		}
	}
	return freed
}

func (r *Residents) debt() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owed
}

// settle must be called by whoever has let go of embeddings that may be resident: nothing else frees what a
// grant waits for.
func (r *Residents) settle() {
	if !r.on() {
		return
	}
	if bytes := r.debt(); bytes > 0 {
		r.pay(bytes)
	}
}

// has says whether k can be taken from here. While a grant waits for memory nothing can: requests that
// take turns with one resident would keep it for ever.
func (r *Residents) has(k embedding.Key) bool { return r.on() && r.debt() == 0 && r.Cache.Has(k) }

// forgive is called by the request at the head of the line before it leaves that place: what it lacked, it has
// or does without.
func (r *Residents) forgive() {
	if !r.on() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owed = 0
}

// pin returns the resident of it with a reference of the caller's. One that breaks the contract leaves:
// its key is right, so it can serve nobody.
func (r *Residents) pin(it *control.PrepareItem, c embedding.Contract) (held, bool) {
	if !r.on() {
		return held{}, false
	}
	buf, meta, ok := r.Cache.Get(it.Key)
	if !ok {
		return held{}, false
	}
	if !fits(it, c, meta) {
		buf.Release()
		r.Cache.Remove(it.Key)
		return held{}, false
	}
	return held{buf: buf, meta: meta, known: checked}, true
}

// fits says whether an object of meta is the one that it describes.
func fits(it *control.PrepareItem, c embedding.Contract, meta embedding.Meta) bool {
	return c.Check(meta.Rows, meta.Cols, meta.DType) == nil && (it.Tokens == 0 || it.Tokens == meta.Layout.KVCells())
}

// keep adds an embedding whose payload was checked.
func (r *Residents) keep(k embedding.Key, h held) {
	if r.on() {
		r.Cache.Put(k, h.buf, h.meta)
	}
}

func (r *Residents) remove(k embedding.Key) {
	if r.on() {
		r.Cache.Remove(k)
	}
}

// room is what the Store's reads may take from the residents. A resolver that keeps nothing itself has them
// evicted for its copies.
type room struct{ *Residents }

// Get implements resolve.Cache: P/D has looked there itself.
func (room) Get(embedding.Key) (*arena.Buf, embedding.Meta, bool) {
	return nil, embedding.Meta{}, false
}

// Put implements resolve.Cache: an embedding becomes resident when its payload was checked.
func (room) Put(embedding.Key, *arena.Buf, embedding.Meta) {}

// Remove implements resolve.Cache.
func (r room) Remove(k embedding.Key) { r.remove(k) }

// Evict implements resolve.Cache. A read does not wait for memory, so nothing is owed.
func (r room) Evict(bytes int64) int64 {
	if !r.on() {
		return 0
	}
	return r.Cache.Evict(bytes)
}
