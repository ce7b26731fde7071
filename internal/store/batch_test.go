// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"testing"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// batching is a Store that answers PUTs of several objects as told.
type batching struct {
	*testkit.FaultStore
	answer []error
	asked  int
}

func (b *batching) PutAll(context.Context, []store.Putting) []error {
	b.asked++
	return b.answer
}

// newBatching returns a bench whose guard is before a Store that batches.
func newBatching(t *testing.T, answer ...error) (*bench, *batching) {
	t.Helper()
	b := newBench(t, store.GuardConfig{})
	s := &batching{FaultStore: b.store, answer: answer}
	var err error
	if b.guard, err = store.NewGuard(store.GuardConfig{Store: s, Arena: b.arena, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	return b, s
}

// putAll offers one object of 64 bytes per key.
func (b *bench) putAll(keys ...embedding.Key) []error {
	b.Helper()
	puts := make([]store.Putting, len(keys))
	for i, k := range keys {
		buf, err := b.arena.Reserve(64)
		if err != nil {
			b.Fatal(err)
		}
		buf.Commit()
		defer buf.Release()
		puts[i] = store.Putting{Key: k, Buf: buf}
	}
	return b.guard.PutAll(b.Context(), puts)
}

// Each PUT of several ends as it would alone: what has no class may still be under way.
func TestPutAllEndsOneByOne(t *testing.T) {
	b, _ := newBatching(t, nil, store.ErrRejected, store.ErrUnavailable, errors.New("no class at all"), store.ErrUnconfirmed)
	defer b.stop()
	want := []error{nil, store.ErrRejected, store.ErrUnavailable, store.ErrUnconfirmed, store.ErrUnconfirmed}
	for i, err := range b.putAll("a", "b", "c", "d", "e") {
		if !errors.Is(err, want[i]) {
			t.Errorf("PUT %d: %v, want %v", i, err, want[i])
		}
	}
	if st := b.guard.Stats(); st.Distrusted != 2 || st.Quarantined != 128 || b.arena.Stats().Quarantined != 128 {
		t.Errorf("%+v, arena %+v; want two keys distrusted and their memory in quarantine", st, b.arena.Stats())
	}
}

// Answers that do not belong to the questions say nothing of any of them.
func TestPutAllOfAnotherLength(t *testing.T) {
	for name, answer := range map[string][]error{"none": nil, "short": {nil}, "long": {nil, nil, nil}} {
		t.Run(name, func(t *testing.T) {
			b, _ := newBatching(t, answer...)
			defer b.stop()
			for i, err := range b.putAll("a", "b") {
				if !errors.Is(err, store.ErrUnconfirmed) {
					t.Errorf("PUT %d: %v, want ErrUnconfirmed", i, err)
				}
			}
			if st := b.guard.Stats(); st.Distrusted != 2 || st.Quarantined != 128 {
				t.Errorf("%+v, want both keys distrusted and their memory in quarantine", st)
			}
		})
	}
}

// A distrusted key is kept from a Store in company, too, and costs the others nothing.
func TestPutAllOfADistrustedKey(t *testing.T) {
	b, s := newBatching(t, store.ErrUnconfirmed)
	defer b.stop()
	b.putAll("bad")
	errs := b.putAll("good", "bad")
	if errs[0] != nil || !errors.Is(errs[1], store.ErrDistrusted) || !errors.Is(errs[1], store.ErrRejected) {
		t.Errorf("got %v, want the good one stored and the other one refused", errs)
	}
	if n := b.store.Calls(testkit.Put); s.asked != 1 || n != 1 {
		t.Errorf("%d batches and %d PUTs, want the first batch, and one PUT of the good key", s.asked, n)
	}
}

// A PUT whose end nobody understands is not known to have ended.
func TestPutWithoutAClass(t *testing.T) {
	b := newBench(t, store.GuardConfig{})
	defer b.stop()
	b.store.Set(testkit.Put, testkit.Fault{Err: errors.New("no class at all")})
	if err := b.put("k", 1, 64); !errors.Is(err, store.ErrUnconfirmed) || b.arena.Stats().Quarantined != 64 {
		t.Errorf("got %v, arena %+v; want it unconfirmed, and its memory in quarantine", err, b.arena.Stats())
	}
}
