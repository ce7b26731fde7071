// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"testing"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/media"
	"afterimage/internal/store"
)

// vllmNaming is that of the vLLM whose Store the tests share.
var vllmNaming = embedding.VLLMNaming{Model: "models/tiny-vl"}

// vllmKey is the key that a vLLM Encoder gives a picture in namespace ns.
func vllmKey(t *testing.T, ns embedding.Namespace, file []byte) embedding.Key {
	t.Helper()
	info, err := media.Inspect(file, media.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return ns.Key(vllmNaming.Identifier(file, info.RGB))
}

// plantV3 stores an object as vLLM does: header and payload, nothing else.
func plantV3(t *testing.T, s store.Store, a *arena.Arena, key embedding.Key, rows, cols int, d embedding.DType, payload []byte) error {
	t.Helper()
	b, err := a.Reserve(embedding.HeaderBytesV3 + len(payload))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	copy(b.Bytes()[embedding.HeaderBytesV3:], payload)
	if err := embedding.V3.Seal(b.Bytes(), key, embedding.Meta{Rows: rows, Cols: cols, DType: d}); err != nil {
		t.Fatal(err)
	}
	b.Commit()
	return s.Put(t.Context(), key, b, store.PutOptions{})
}

// readV3 reads the payload of an object as vLLM does, which knows its exact size.
func readV3(t *testing.T, s store.Store, key embedding.Key, rows, cols int, d embedding.DType) []byte {
	t.Helper()
	n := embedding.HeaderBytesV3 + rows*cols*d.Bytes()
	got := s.Get(t.Context(), []store.Want{{Key: key, Bytes: n, Exact: true}})[0]
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	defer got.Buf.Release()
	_, payload, err := embedding.V3.Open(got.Buf.Bytes(), key, embedding.Contract{Rows: rows, Cols: cols, DType: d})
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(payload)
}

// TestSharedWithVLLM: what an Encoder publishes is found under vLLM's name, in vLLM's format and dtype;
// what vLLM published is used; and P/Ds get the same bits, freshly encoded or not.
func TestSharedWithVLLM(t *testing.T) {
	for _, d := range []embedding.DType{embedding.Float32, embedding.Float16, embedding.BFloat16} {
		t.Run(d.String(), func(t *testing.T) {
			f := newFleet(t, func(o *options) { o.share = &d })
			mine, theirs, odd := picture(t, 56, 56, 1), picture(t, 56, 56, 2), picture(t, 56, 56, 3)
			const rows = 4
			first := f.ask(t, "0", mine)
			f.published(t, 0)
			second, third := f.ask(t, "1", mine), f.ask(t, "1", mine)
			if got := sources(first) + " " + sources(second) + " " + sources(third); got != "encoded store local" {
				t.Errorf("sources %q, want encoded, store, local", got)
			}
			if first.Text == "" || first.Text != second.Text || first.Text != third.Text {
				t.Errorf("answers differ: %q, %q, %q", first.Text, second.Text, third.Text)
			}
			// A request that joins knows the key alone; the layout has to be there.
			buf, meta, ok := f.encoders[1].cache.Get(vllmKey(t, f.ns, mine))
			if !ok || meta.Layout.Rows() != rows {
				t.Fatalf("what came from the Store is cached: %v, with the layout of %d rows, want %d", ok, meta.Layout.Rows(), rows)
			}
			buf.Release()
			e := f.encoders[0]
			payload := readV3(t, e.store, vllmKey(t, f.ns, mine), rows, cols, d)
			if err := plantV3(t, e.store, e.arena, vllmKey(t, f.ns, theirs), rows, cols, d, payload); err != nil {
				t.Fatal(err)
			}
			if a := f.ask(t, "0", theirs); sources(a) != "store" || a.Text != first.Text {
				t.Errorf("vLLM's object: source %q, answer %q, want store and %q", sources(a), a.Text, first.Text)
			}
			// An object that fits vLLM and not this Encoder is left to vLLM.
			key := vllmKey(t, f.ns, odd)
			if err := plantV3(t, e.store, e.arena, key, rows/2, cols, d, payload[:len(payload)/2]); err != nil {
				t.Fatal(err)
			}
			if a := f.ask(t, "0", odd); sources(a) != "encoded" || a.Text == "" {
				t.Errorf("an object of other rows: source %q, answer %q, want encoded", sources(a), a.Text)
			}
			f.published(t, 0)
			readV3(t, e.store, key, rows/2, cols, d)
			eventually(t, "all grants are back", f.free)
		})
	}
}
