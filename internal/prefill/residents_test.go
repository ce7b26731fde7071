// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"testing"

	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// TestResidentsPay: a grant that lacks memory gets what nobody uses at once and the rest as requests let go;
// until then nothing is taken from the residents.
func TestResidentsPay(t *testing.T) {
	const size = 1024
	a, err := arena.New(arena.Config{Name: "test", Bytes: 4 * size})
	if err != nil {
		t.Fatal(err)
	}
	r := &Residents{Cache: cache.New(4 * size)}
	it := &control.PrepareItem{Contract: embedding.Contract{Rows: 1, Cols: 1, DType: embedding.Float32}}
	meta := embedding.Meta{Rows: 1, Cols: 1, DType: embedding.Float32}
	add := func(k embedding.Key) {
		t.Helper()
		b, err := a.Reserve(size)
		if err != nil {
			t.Fatal(err)
		}
		b.Commit()
		r.keep(k, held{buf: b, meta: meta, known: checked})
		b.Release()
	}
	for _, k := range []embedding.Key{"a", "b", "c", "d"} {
		add(k)
	}
	pin := func(k embedding.Key) held {
		t.Helper()
		it.Key = k
		h, ok := r.pin(it, it.Contract)
		if !ok {
			t.Fatalf("%s is not resident", k)
		}
		return h
	}
	pinA, pinB := pin("a"), pin("b")
	if freed := r.Evict(3 * size); freed != 2*size {
		t.Errorf("freed %d bytes, want %d that nobody uses", freed, 2*size)
	}
	if r.has("a") {
		t.Error("a resident is offered while a grant waits")
	}
	pinA.buf.Release()
	r.settle()
	if st := a.Stats(); st.Committed != size {
		t.Errorf("%d bytes held after a request let go, want %d", st.Committed, size)
	}
	r.Evict(size)
	if r.has("b") {
		t.Error("a resident is offered while a grant waits for more")
	}
	r.forgive()
	if !r.has("b") || r.has("a") {
		t.Error("after the grant the resident that is left is not offered")
	}
	it.Contract.Rows = 2
	if _, ok := r.pin(it, it.Contract); ok || r.has("b") {
		t.Error("a resident that breaks the contract was handed out, or stays")
	}
	pinB.buf.Release()
	r.settle()
	if st := a.Stats(); st.Committed != 0 {
		t.Errorf("%d bytes left", st.Committed)
	}
	var none *Residents
	none.settle()
	none.forgive()
	if none.Evict(1) != 0 || none.has("a") {
		t.Error("no residents keep something")
	}
}
