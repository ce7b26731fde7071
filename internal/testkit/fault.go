// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// Call names a method of store.Store for Fault.
type Call string

// The calls that a Fault can hit.
const (
	Exists Call = "exists"
	Get    Call = "get"
	Put    Call = "put"
	Remove Call = "remove"
)

// Fault is what goes wrong with one kind of call. Zero fields leave that part alone.
type Fault struct {
	Err   error         // the call, or each item of a Get, fails with it
	Times int           // the fault mends itself after so many calls; 0 is never
	Delay time.Duration // the call waits first, or until its ctx ends
	Hold  chan struct{} // the call waits until it is closed, or its ctx ends
	// BytesPerSecond makes a Get or Put wait for its bytes; 0 is no limit.
	BytesPerSecond int64
	// Mangle changes each object that a Get returns. It gets a copy of the bytes and returns what the
	// reader shall see: corrupt, short, long, or another object altogether.
	Mangle func(embedding.Key, []byte) []byte
	// Keys limits Err and Mangle of a Get to these keys; nil is all.
	Keys map[embedding.Key]bool
	// Answer changes the whole answer to a Get: too short, without a class, twice the same. It owns the
	// references of what it leaves out.
	Answer func([]store.Got) []store.Got
	// States changes the whole answer to an Exists.
	States func([]store.State) []store.State
	// LastOnly answers a key that a Get names twice as some Stores do: all are reported as read, and
	// only the last one is.
	LastOnly bool
}

// FaultStore is a Store whose calls go wrong on demand, and are counted. It owns the inner Store.
//
// A Get that fails as unconfirmed behaves like a real one: it has memory of the reader, which it
// keeps, and may write into later (WriteLate) until the Store is closed.
type FaultStore struct {
	arena *arena.Arena

	mu     sync.Mutex // guards the fields below
	inner  store.Store
	faults map[Call]Fault
	calls  map[Call]int
	twice  int          // batches that named a key twice
	late   []*arena.Buf // memory that is still being written
}

// NewFaultStore wraps inner. Mangled objects are written to a.
func NewFaultStore(inner store.Store, a *arena.Arena) *FaultStore {
	return &FaultStore{inner: inner, arena: a, faults: map[Call]Fault{}, calls: map[Call]int{}}
}

// Set makes call fail as f says from here on; the zero Fault mends it.
func (s *FaultStore) Set(call Call, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[call] = f
}

// Calls returns how often call was made.
func (s *FaultStore) Calls(call Call) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[call]
}

// AllCalls returns how many calls of all kinds were made.
func (s *FaultStore) AllCalls() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range maps.Values(s.calls) {
		n += c
	}
	return n
}

// Twice returns how many batches named a key twice, which no caller should.
func (s *FaultStore) Twice() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.twice
}

// Restart replaces the Store by another one, as a restart does that loses all objects.
func (s *FaultStore) Restart(fresh store.Store) error {
	s.mu.Lock()
	old := s.inner
	s.inner = fresh
	s.mu.Unlock()
	return old.Close()
}

// WriteLate writes b all over the memory of every Get that was unconfirmed, and returns how many bytes
// it wrote.
func (s *FaultStore) WriteLate(b byte) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, buf := range s.late {
		mem := buf.Bytes()
		for i := range mem {
			mem[i] = b
		}
		n += len(mem)
	}
	return n
}

// enter counts a call and waits as its fault says.
func (s *FaultStore) enter(ctx context.Context, call Call, bytes int64) (store.Store, Fault, error) {
	s.mu.Lock()
	f, inner := s.faults[call], s.inner
	s.calls[call]++
	if f.Times == 1 {
		delete(s.faults, call)
	} else if f.Times > 1 {
		left := f
		left.Times--
		s.faults[call] = left
	}
	s.mu.Unlock()
	wait := f.Delay
	if f.BytesPerSecond > 0 {
		wait += time.Duration(float64(bytes) / float64(f.BytesPerSecond) * float64(time.Second))
	}
	var late <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		late = t.C
	}
	if late == nil && f.Hold == nil {
		return inner, f, nil
	}
	select {
	case <-late:
	case <-f.Hold:
	case <-ctx.Done():
		return inner, f, fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	return inner, f, nil
}

// Exists implements store.Store.
func (s *FaultStore) Exists(ctx context.Context, keys []embedding.Key) ([]store.State, error) {
	s.countTwice(keys)
	inner, f, err := s.enter(ctx, Exists, 0)
	if err == nil {
		err = f.Err
	}
	if err != nil {
		return nil, err
	}
	states, err := inner.Exists(ctx, keys)
	if err == nil && f.States != nil {
		states = f.States(states)
	}
	return states, err
}

func (s *FaultStore) countTwice(keys []embedding.Key) {
	seen := map[embedding.Key]bool{}
	for _, k := range keys {
		seen[k] = true
	}
	if len(seen) < len(keys) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.twice++
	}
}

// Put implements store.Store.
func (s *FaultStore) Put(ctx context.Context, k embedding.Key, b *arena.Buf, o store.PutOptions) error {
	inner, f, err := s.enter(ctx, Put, int64(b.Len()))
	if err == nil {
		err = f.Err
	}
	if err != nil {
		return err
	}
	return inner.Put(ctx, k, b, o)
}

// Remove implements store.Store.
func (s *FaultStore) Remove(ctx context.Context, keys []embedding.Key) error {
	inner, f, err := s.enter(ctx, Remove, 0)
	if err == nil {
		err = f.Err
	}
	if err != nil {
		return err
	}
	return inner.Remove(ctx, keys)
}

// Events implements store.Store.
func (s *FaultStore) Events(ctx context.Context) <-chan store.Event { return s.current().Events(ctx) }

// Capabilities implements store.Store.
func (s *FaultStore) Capabilities() store.Capabilities { return s.current().Capabilities() }

func (s *FaultStore) current() store.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inner
}

// Close implements store.Store. Nothing is written late any more.
func (s *FaultStore) Close() error {
	s.mu.Lock()
	late := s.late
	s.late = nil
	s.mu.Unlock()
	for _, b := range late {
		b.Release()
	}
	return s.current().Close()
}
