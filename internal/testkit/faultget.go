// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"errors"
	"fmt"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// Get implements store.Store.
func (s *FaultStore) Get(ctx context.Context, wants []store.Want) []store.Got {
	keys, bytes := make([]embedding.Key, len(wants)), int64(0)
	for i, w := range wants {
		keys[i] = w.Key
		bytes += int64(w.Bytes)
	}
	s.countTwice(keys)
	inner, f, err := s.enter(ctx, Get, bytes)
	if err != nil {
		gots := make([]store.Got, len(wants))
		for i := range gots {
			gots[i].Err = err
		}
		return gots
	}
	gots := inner.Get(ctx, wants)
	for i, g := range gots {
		switch hit := f.Keys == nil || f.Keys[wants[i].Key]; {
		case g.Buf == nil || !hit:
		case f.Err != nil:
			gots[i] = s.fail(g.Buf, f.Err)
		case f.Mangle != nil:
			gots[i] = s.mangle(wants[i].Key, g.Buf, f.Mangle)
		case f.LastOnly && named(wants[i+1:], wants[i].Key):
			gots[i] = s.mangle(wants[i].Key, g.Buf, func(_ embedding.Key, b []byte) []byte { clear(b); return b })
		}
	}
	if f.Answer != nil {
		gots = f.Answer(gots)
	}
	return gots
}

func named(wants []store.Want, k embedding.Key) bool {
	for _, w := range wants {
		if w.Key == k {
			return true
		}
	}
	return false
}

// fail takes back an object that was read. Where the reader cannot know that the reading has ended,
// it has not.
func (s *FaultStore) fail(b *arena.Buf, err error) store.Got {
	if !errors.Is(err, store.ErrUnconfirmed) {
		b.Release()
		return store.Got{Err: err}
	}
	defer b.Release()
	late, full := s.arena.Reserve(b.Len())
	if full != nil {
		return store.Got{Err: fmt.Errorf("%w: %w", store.ErrRejected, full)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = append(s.late, late)
	return store.Got{Err: err}
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
