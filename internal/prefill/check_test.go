// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"testing"

	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// sealed returns an object of one row with a value in it, of which everything else is as it should be. The caller owns
// the reference.
func sealed(t *testing.T, a *arena.Arena, k embedding.Key, value float32) held {
	t.Helper()
	meta := embedding.Meta{Rows: 1, Cols: 4, DType: embedding.Float32, Layout: embedding.Layout{Parts: []embedding.Part{{Rows: 1, Positions: 1}}}}
	b, err := a.Reserve(embedding.A1.ObjectBytes(meta.Layout, meta.Cols, meta.DType))
	if err != nil {
		t.Fatal(err)
	}
	off := embedding.A1.PayloadOffset(meta.Layout)
	clear(b.Bytes())
	binary.LittleEndian.PutUint32(b.Bytes()[off+4:], math.Float32bits(value))
	if err := embedding.A1.Seal(b.Bytes(), k, meta); err != nil {
		t.Fatal(err)
	}
	b.Commit()
	return held{buf: b, meta: meta}
}

// Whichever way an embedding came, a value that no model can take is found before it is offered to anybody; what is
// resident was looked at, and is not again.
func TestEveryRoadIsScanned(t *testing.T) {
	a, err := arena.New(arena.Config{Name: "test", Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	const key embedding.Key = "m@id:i"
	item := &control.PrepareItem{Key: key, Contract: embedding.Contract{Rows: 1, Cols: 4, DType: embedding.Float32}, Tokens: 1}
	worker := func() *Prefill {
		return &Prefill{cfg: Config{Protocol: embedding.A1, Logger: slog.New(slog.DiscardHandler), Residents: &Residents{Cache: cache.New(1 << 20)}}}
	}
	nan, infinite := float32(math.NaN()), float32(math.Inf(-1))
	for _, c := range []struct {
		known known
		value float32
		ok    bool
	}{{unseen, 1, true}, {unseen, nan, false}, {summed, 1, true}, {summed, nan, false}, {summed, infinite, false}, {checked, nan, true}} {
		p, h := worker(), sealed(t, a, key, c.value)
		h.known = c.known
		err := p.admit(item, &h)
		switch resident := p.cfg.Residents.has(key); {
		case (err == nil) != c.ok || resident != c.ok:
			t.Errorf("known %d, value %v: %v, resident: %v", c.known, c.value, err, resident)
		case err != nil && !errors.Is(err, embedding.ErrNotFinite):
			t.Errorf("known %d, value %v: %v", c.known, c.value, err)
		case err == nil:
			h.buf.Release()
		}
		p.cfg.Residents.remove(key)
	}
	// What the Store has copied to here goes to the residents at once.
	for value, ok := range map[float32]bool{1: true, infinite: false} {
		p, h := worker(), sealed(t, a, key, value)
		h.known = taken(h.buf)
		s := p.read(item, h)
		if s.read != ok || s.found.buf != nil || p.cfg.Residents.has(key) != ok {
			t.Errorf("a copy of %v from the Store: %+v, resident: %v", value, s, p.cfg.Residents.has(key))
		}
		p.cfg.Residents.remove(key)
	}
	if st := a.Stats(); st.Committed+st.Reserved != 0 {
		t.Errorf("%d bytes are still taken", st.Committed+st.Reserved)
	}
}
