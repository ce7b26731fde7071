// SPDX-License-Identifier: Apache-2.0

package embedding_test

import (
	"errors"
	"testing"

	"afterimage/internal/embedding"
)

func TestInspect(t *testing.T) {
	layout := embedding.Layout{Parts: []embedding.Part{{Rows: 3, Positions: 3}}}
	m := embedding.Meta{Rows: 3, Cols: 8, DType: embedding.BFloat16, Layout: layout}
	for _, p := range []embedding.Protocol{embedding.V3, embedding.A1} {
		ns := embedding.Namespace{Model: "m", Encoder: "e", DType: m.DType, Protocol: p}
		key, free := ns.Key("1"), embedding.Key("no namespace")
		obj := make([]byte, p.ObjectBytes(layout, m.Cols, m.DType))
		if err := p.Seal(obj, key, m); err != nil {
			t.Fatal(err)
		}
		gotP, got, payload, err := embedding.Inspect(obj, key)
		if err != nil || gotP != p || got.Rows != 3 || got.Cols != 8 || got.DType != m.DType || len(payload) != 48 {
			t.Errorf("%s: %v %+v, %d bytes, %v", p, gotP, got, len(payload), err)
		}
		if _, _, _, err := embedding.Inspect(obj, free); p == embedding.V3 && err != nil || p == embedding.A1 && !errors.Is(err, embedding.ErrForeign) {
			t.Errorf("%s under a key without a format: %v", p, err)
		}
		other := ns
		if other.Protocol = embedding.V3; p == embedding.V3 {
			other.Protocol = embedding.A1
		}
		if _, _, _, err := embedding.Inspect(obj, other.Key("1")); !errors.Is(err, embedding.ErrMalformed) {
			t.Errorf("%s under a key of %s: %v, want malformed", p, other.Protocol, err)
		}
		for n := range len(obj) {
			if _, _, _, err := embedding.Inspect(obj[:n], key); !errors.Is(err, embedding.ErrMalformed) {
				t.Fatalf("%s cut at %d: %v", p, n, err)
			}
		}
	}
}

func TestProtocolOf(t *testing.T) {
	f := func(key embedding.Key, want embedding.Protocol) {
		t.Helper()
		if got := embedding.ProtocolOf(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	f("embedding@model:m@revision:r@encoder:e@dtype:torch.float32@protocol:v3@id:x", embedding.V3)
	f("p@embedding@model:m@revision:r@encoder:e@dtype:torch.float32@protocol:a1@id:x", embedding.A1)
	f("x@protocol:a1@id:@protocol:v3@id:y", "")
	f("x", "")
}
