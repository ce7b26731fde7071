// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"testing"

	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
)

// TestHandOff: what a cache has and the Store lacks is stored, the hottest first, whatever the admission; keys
// of another format are left alone, and every reference is back.
func TestHandOff(t *testing.T) {
	a, err := arena.New(arena.Config{Name: "test", Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	local, err := ram.NewLocal(ram.Config{MaxBytes: 1 << 20}, a)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	p, err := New(Config{Store: local, Protocol: embedding.A1, Admission: SecondSighting})
	if err != nil {
		t.Fatal(err)
	}
	c := cache.New(1 << 20)
	var keys []embedding.Key
	for i, proto := range []embedding.Protocol{embedding.A1, embedding.A1, embedding.V3, embedding.A1} {
		ns := embedding.Namespace{Model: "m", Encoder: "e", DType: embedding.Float32, Protocol: proto}
		l := embedding.Layout{Parts: []embedding.Part{{Rows: 2, Positions: 2}}}
		m := embedding.Meta{Rows: 2, Cols: 4, DType: embedding.Float32, Layout: l}
		key := ns.Key(embedding.Identifier([]string{"a", "b", "c", "d"}[i]))
		buf, err := a.Reserve(embedding.A1.ObjectBytes(l, m.Cols, m.DType))
		if err != nil {
			t.Fatal(err)
		}
		if err := embedding.A1.Seal(buf.Bytes(), key, m); err != nil {
			t.Fatal(err)
		}
		buf.Commit()
		c.Put(key, buf, m)
		if i == 1 { // which the Store has
			if err := local.Put(t.Context(), key, buf, store.PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		buf.Release()
		keys = append(keys, key)
	}
	if hot := c.Hot(); len(hot) != 4 || hot[0].Key != keys[3] || hot[3].Key != keys[0] {
		t.Errorf("hot %v", hot)
	} else if n := p.HandOff(t.Context(), hot); n != 2 {
		t.Errorf("%d objects handed off, want 2", n)
	}
	states, err := local.Exists(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false, true} {
		if states[i].Present != want {
			t.Errorf("object %d is in the Store: %v, want %v", i, states[i].Present, want)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	c.Close()
	if st := a.Stats(); st.Committed != 0 {
		t.Errorf("%d bytes are still held", st.Committed)
	}
}
