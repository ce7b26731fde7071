// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"
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
	Delay time.Duration // the call waits first, or until its ctx ends
	Hold  chan struct{} // the call waits until it is closed, or its ctx ends
	// Mangle changes each object that a Get returns. It gets a copy of the bytes and returns what the
	// reader shall see: corrupt, short, or another object altogether.
	Mangle func(embedding.Key, []byte) []byte
	// Keys limits Err and Mangle of a Get to these keys; nil is all.
	Keys map[embedding.Key]bool
}

// FaultStore is a Store whose calls go wrong on demand, and are counted. It owns the inner Store.
type FaultStore struct {
	store.Store
	arena *arena.Arena

	mu     sync.Mutex
	faults map[Call]Fault
	calls  map[Call]int
}

// NewFaultStore wraps inner. Mangled objects are written to a.
func NewFaultStore(inner store.Store, a *arena.Arena) *FaultStore {
	return &FaultStore{Store: inner, arena: a, faults: map[Call]Fault{}, calls: map[Call]int{}}
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

// enter counts a call and waits as its fault says.
func (s *FaultStore) enter(ctx context.Context, call Call) (Fault, error) {
	s.mu.Lock()
	f := s.faults[call]
	s.calls[call]++
	s.mu.Unlock()
	var late <-chan time.Time
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		late = t.C
	}
	if late == nil && f.Hold == nil {
		return f, nil
	}
	select {
	case <-late:
	case <-f.Hold:
	case <-ctx.Done():
		return f, fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	return f, nil
}

// Exists implements store.Store.
func (s *FaultStore) Exists(ctx context.Context, keys []embedding.Key) ([]store.State, error) {
	f, err := s.enter(ctx, Exists)
	if err == nil {
		err = f.Err
	}
	if err != nil {
		return nil, err
	}
	return s.Store.Exists(ctx, keys)
}

// Get implements store.Store.
func (s *FaultStore) Get(ctx context.Context, wants []store.Want) []store.Got {
	f, err := s.enter(ctx, Get)
	if err != nil {
		gots := make([]store.Got, len(wants))
		for i := range gots {
			gots[i].Err = err
		}
		return gots
	}
	gots := s.Store.Get(ctx, wants)
	for i, g := range gots {
		if g.Buf == nil || f.Keys != nil && !f.Keys[wants[i].Key] {
			continue
		}
		if f.Err != nil {
			g.Buf.Release()
			gots[i] = store.Got{Err: f.Err}
		} else if f.Mangle != nil {
			gots[i] = s.mangle(wants[i].Key, g.Buf, f.Mangle)
		}
	}
	return gots
}

func (s *FaultStore) mangle(k embedding.Key, b *arena.Buf, f func(embedding.Key, []byte) []byte) store.Got {
	defer b.Release()
	obj := f(k, append([]byte(nil), b.Bytes()...))
	nb, err := s.arena.Reserve(len(obj))
	if err != nil {
		return store.Got{Err: fmt.Errorf("%w: %w", store.ErrRejected, err)}
	}
	copy(nb.Bytes(), obj)
	nb.Commit()
	return store.Got{Buf: nb}
}

// Put implements store.Store.
func (s *FaultStore) Put(ctx context.Context, k embedding.Key, b *arena.Buf, o store.PutOptions) error {
	f, err := s.enter(ctx, Put)
	if err == nil {
		err = f.Err
	}
	if err != nil {
		return err
	}
	return s.Store.Put(ctx, k, b, o)
}

// Remove implements store.Store.
func (s *FaultStore) Remove(ctx context.Context, keys []embedding.Key) error {
	f, err := s.enter(ctx, Remove)
	if err == nil {
		err = f.Err
	}
	if err != nil {
		return err
	}
	return s.Store.Remove(ctx, keys)
}
