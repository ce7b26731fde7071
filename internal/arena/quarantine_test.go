// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"errors"
	"strings"
	"testing"
)

func TestQuarantineKeepsTheRange(t *testing.T) {
	a := newArena(t, 1024)
	b := reserve(t, a, 512)
	token := b.Quarantine("no answer to a read")
	b.Abort() // as deferred by whoever reserved it
	if got, want := a.Stats(), (Stats{Capacity: 1024, Quarantined: 512, Peak: 512, Largest: 512}); got != want {
		t.Errorf("quarantined: %+v, want %+v", got, want)
	}
	if _, err := a.Reserve(513); !errors.Is(err, ErrFull) {
		t.Errorf("Reserve over quarantined memory: %v, want ErrFull", err)
	}
	qs := a.Quarantined()
	if len(qs) != 1 || qs[0].Token != token || qs[0].Bytes != 512 || qs[0].Reason != "no answer to a read" || qs[0].Since.IsZero() {
		t.Errorf("listed as %+v", qs)
	}
	if !a.Reclaim(token) {
		t.Error("the token is not in force")
	}
	if a.Reclaim(token) {
		t.Error("the token is in force twice")
	}
	reserve(t, a, 1024).Abort()
}

// Readers of a quarantined range go on, and the range waits for them and for every quarantine.
func TestQuarantineOfACommittedRange(t *testing.T) {
	a := newArena(t, 1024)
	b := reserve(t, a, 64)
	b.Bytes()[0] = 7
	b.Commit()
	reader := b.Retain()
	first := b.Retain().Quarantine("one write")
	second := b.Quarantine("another write")
	if st := a.Stats(); st.Committed != 0 || st.Quarantined != 64 {
		t.Errorf("%+v, want 64 bytes in quarantine alone", st)
	}
	a.Reclaim(first)
	if st := a.Stats(); st.Quarantined != 64 {
		t.Errorf("%+v after one of two, want 64 bytes in quarantine", st)
	}
	a.Reclaim(second)
	if st := a.Stats(); st.Committed != 64 || st.Quarantined != 0 || reader.Bytes()[0] != 7 {
		t.Errorf("%+v with a reader left, want 64 bytes committed", st)
	}
	reader.Release()
}

func TestQuarantinedRangeIsNeverFinished(t *testing.T) {
	a := newArena(t, 1024)
	f := func(want string, misuse func(*Buf)) {
		t.Helper()
		b := reserve(t, a, 64)
		token := b.Quarantine("test")
		defer a.Reclaim(token)
		defer func() {
			t.Helper()
			if r, _ := recover().(string); !strings.HasPrefix(r, "BUG: arena: "+want) {
				t.Errorf("got %q, want %s", r, want)
			}
		}()
		misuse(b)
	}
	f("Commit of a quarantined", (*Buf).Commit)
	f("Truncate of a quarantined", func(b *Buf) { b.Truncate(1) })
}

func TestCloseWithQuarantine(t *testing.T) {
	a, err := New(Config{Name: "test", Bytes: 1024})
	if err != nil {
		t.Fatal(err)
	}
	b := reserve(t, a, 64)
	mem := b.Bytes()
	token := b.Quarantine("read of key k")
	if err := a.Close(); !errors.Is(err, ErrQuarantined) || !strings.Contains(err.Error(), `"test" stays mapped: 1 ranges of 64 bytes`) ||
		!strings.Contains(err.Error(), "read of key k") {
		t.Errorf("Close: %v", err)
	}
	mem[0] = 1 // what a late writer does
	if _, err := a.Reserve(1); !errors.Is(err, ErrClosed) {
		t.Errorf("Reserve after Close: %v, want ErrClosed", err)
	}
	a.Reclaim(token)
	for range 2 {
		if err := a.Close(); err != nil {
			t.Errorf("Close after Reclaim: %v", err)
		}
	}
}

func TestDetachUnmapsWithQuarantine(t *testing.T) {
	a, err := New(Config{Name: "test", Bytes: 1024})
	if err != nil {
		t.Fatal(err)
	}
	used := reserve(t, a, 64)
	token := reserve(t, a, 64).Quarantine("on loan")
	if err := a.Detach(); err == nil {
		t.Error("Detach unmaps what is in use")
	}
	used.Release()
	if err := a.Detach(); err != nil {
		t.Error(err)
	}
	if !a.Reclaim(token) || a.Close() != nil {
		t.Error("a detached arena does not settle")
	}
}
