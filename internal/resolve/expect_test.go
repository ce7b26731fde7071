// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit"
)

// unsized is a Store that does not tell sizes.
type unsized struct{ *testkit.FaultStore }

func (u unsized) Capabilities() store.Capabilities {
	c := u.FaultStore.Capabilities()
	c.Unsized = true
	return c
}

// newUnsized is a bench without a cache whose Store does not tell sizes; asked returns how many exists and get calls
// came since it was called last.
func newUnsized(t *testing.T) (b *bench, asked func() (exists, gets int)) {
	b = newBench(t, embedding.V3, nil)
	r, err := New(Config{Store: unsized{b.store}, Protocol: embedding.V3, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	b.r = r
	e, g := 0, 0
	return b, func() (int, int) {
		t.Helper()
		e0, g0 := e, g
		e, g = b.store.Calls(testkit.Exists), b.store.Calls(testkit.Get)
		return e - e0, g - g0
	}
}

// Once lookups find something, the next read at once, what is absent included; one that finds nothing ends it.
func TestExpectedIsNotAskedFor(t *testing.T) {
	b, asked := newUnsized(t)
	x, y := item("x", 3, 8), item("y", 5, 8)
	b.plant(x, x, 1)
	want := func(exists, gets int, what string) {
		t.Helper()
		if e, g := asked(); e != exists || g != gets {
			t.Errorf("%s: %d exists and %d get calls, want %d and %d", what, e, g, exists, gets)
		}
	}
	for range expectAfter {
		b.hit(b.resolve(x)[0], x, control.SourceStore, 1)
		want(1, 1, "nothing is expected yet")
	}
	rs := b.resolve(x, y)
	b.hit(rs[0], x, control.SourceStore, 1)
	b.miss(rs[1], Absent)
	if rs[1].Err != nil {
		t.Errorf("a plain miss has the error %v", rs[1].Err)
	}
	want(0, 1, "something is expected")
	before := b.arena.Stats()
	b.miss(b.resolve(y)[0], Absent)
	want(0, 1, "something was expected")
	if after := b.arena.Stats(); after.Reserved != before.Reserved || after.Committed != before.Committed {
		t.Errorf("the arena is %+v after a read of nothing, was %+v", after, before)
	}
	for range 3 {
		b.miss(b.resolve(y)[0], Absent)
		want(1, 0, "nothing is expected any more")
	}
	if n := testutil.ToFloat64(b.r.Metrics().unasked); n != 2 {
		t.Errorf("%v lookups counted as unasked, want 2", n)
	}
}

// Wrong objects are noticed and dropped without a question, too.
func TestExpectedIsChecked(t *testing.T) {
	b, asked := newUnsized(t)
	x, wrong := item("x", 3, 8), item("wrong", 3, 8)
	b.plant(x, x, 1)
	b.plant(wrong, item("other", 4, 8), 2)
	for range expectAfter {
		b.resolve(x)
	}
	asked()
	rs := b.resolve(wrong, x)
	if rs[0].Buf != nil || rs[0].Reason == Absent {
		t.Errorf("a wrong object: %+v", rs[0])
	}
	b.hit(rs[1], x, control.SourceStore, 1)
	if e, g := asked(); e != 0 || g != 1 {
		t.Errorf("%d exists and %d get calls, want one get", e, g)
	}
}

// A Store that tells sizes is always asked, and so is one for more than the question is worth. A fault changes
// nothing of what is expected.
func TestAskedAllTheSame(t *testing.T) {
	b, asked := newUnsized(t)
	x := item("x", 3, 8)
	b.plant(x, x, 1)
	for range expectAfter {
		b.resolve(x)
	}
	b.store.Set(testkit.Get, testkit.Fault{Err: store.ErrUnavailable, Times: 1})
	b.miss(b.resolve(x)[0], Unavailable)
	asked()
	b.hit(b.resolve(x)[0], x, control.SourceStore, 1)
	if e, _ := asked(); e != 0 {
		t.Errorf("%d exists calls after a fault, want none", e)
	}
	b.miss(b.resolve(item("large", expectBytes/32, 8))[0], Absent)
	if e, g := asked(); e != 1 || g != 0 {
		t.Errorf("%d exists and %d get calls for 8 MiB and a header, want one exists", e, g)
	}
	sized := newBench(t, embedding.V3, func(c *Config) { c.Cache = nil })
	sized.plant(x, x, 1)
	for range expectAfter + 1 {
		sized.resolve(x)
	}
	if n := sized.store.Calls(testkit.Exists); n != expectAfter+1 {
		t.Errorf("%d exists calls to a Store that tells sizes, want %d", n, expectAfter+1)
	}
}

// wanting is a Store that does not tell sizes, and notes what it was asked to give.
type wanting struct {
	unsized
	wants []store.Want
}

func (w *wanting) Exists(ctx context.Context, keys []embedding.Key) ([]store.State, error) {
	states, err := w.unsized.Exists(ctx, keys)
	for i := range states {
		states[i].Bytes = 0
	}
	return states, err
}

func (w *wanting) Get(ctx context.Context, wants []store.Want) []store.Got {
	w.wants = append(w.wants, wants...)
	return w.unsized.Get(ctx, wants)
}

// What the Store has said that it has is read without a further question, where that holds of all items; and where
// the size is known the Store is asked for just that.
func TestStoredIsNotAskedFor(t *testing.T) {
	b, asked := newUnsized(t)
	w := &wanting{unsized: unsized{b.store}}
	b.proto = embedding.A1
	var err error
	if b.r, err = New(Config{Store: w, Protocol: embedding.A1, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	x, y := item("x", 3, 8), item("y", 5, 8)
	b.plant(x, x, 1)
	size := int(b.srv.Stats().Bytes)
	for _, c := range []struct {
		stored bool
		bytes  int
		exists int
	}{{false, 0, 1}, {false, size, 1}, {true, 0, 0}, {true, size, 0}} {
		b.r.expects.found.Store(0)
		w.wants = nil
		asked()
		x.Stored, x.Bytes = c.stored, c.bytes
		b.hit(b.resolve(x)[0], x, control.SourceStore, 1)
		if e, g := asked(); e != c.exists || g != 1 {
			t.Errorf("%+v: %d exists and %d get calls, want %d and 1", c, e, g, c.exists)
		}
		if got := w.wants[0]; got.Exact != (c.bytes > 0) || c.bytes > 0 && got.Bytes != size || got.Bytes < size {
			t.Errorf("%+v: asked for %+v, the object has %d bytes", c, got, size)
		}
	}
	rs := b.resolve(x, y)
	b.hit(rs[0], x, control.SourceStore, 1)
	b.miss(rs[1], Absent)
	if e, _ := asked(); e != 1 {
		t.Errorf("%d questions about two of which one is said to be there, want 1", e)
	}
	y.Stored = true // and is gone since
	if res := b.resolve(y)[0]; res.Reason != Absent || res.Err == nil {
		t.Errorf("%q, %v, want that it is absent, and an error", res.Reason, res.Err)
	}
}

// A size that no object of the contract can have is the asker's mistake: what the Store has is read, and stays.
func TestImpossibleSizeOfAnItem(t *testing.T) {
	b, _ := newUnsized(t)
	x := item("x", 3, 8)
	b.plant(x, x, 1)
	for _, told := range []int{1, 1 << 30} {
		odd := x
		odd.Bytes, odd.Stored = told, true
		b.hit(b.resolve(odd)[0], x, control.SourceStore, 1)
	}
}
