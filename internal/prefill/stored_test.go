// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/resolve"
	"afterimage/internal/store"
)

// copies is a Store of line items that copies them into the pool, and tells no sizes.
type copies struct {
	store.Store
	t      *testing.T
	pool   *arena.Arena
	exists int
	gets   [][]store.Want
}

func (c *copies) Capabilities() store.Capabilities { return store.Capabilities{Unsized: true} }

func (c *copies) Exists(_ context.Context, keys []embedding.Key) ([]store.State, error) {
	c.exists++
	states := make([]store.State, len(keys))
	for i := range states {
		states[i].Present = true
	}
	return states, nil
}

func (c *copies) Get(_ context.Context, wants []store.Want) []store.Got {
	c.gets = append(c.gets, wants)
	gots := make([]store.Got, len(wants))
	for i, w := range wants {
		gots[i].Buf = sealed(c.t, c.pool, w.Key, 1).buf
	}
	return gots
}

// What the Store has is asked for once and read once, in a piece of memory of its size.
func TestStoredIsAskedForOnce(t *testing.T) {
	l := newLine(t)
	defer l.close()
	s := &copies{t: t, pool: l.pool}
	l.p.cfg.Store = s
	var err error
	if l.p.resolver, err = resolve.New(resolve.Config{Store: s, Protocol: embedding.A1, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	layout := embedding.Layout{Parts: []embedding.Part{{Rows: 1, Positions: 1}}}
	var req control.PrepareRequest
	for _, key := range []embedding.Key{"m@protocol:a1@id:a", "m@protocol:a1@id:b"} {
		req.Items = append(req.Items, control.PrepareItem{
			Key: key, Tokens: 1, Contract: embedding.Contract{Rows: 1, Cols: lineCols, DType: embedding.Float32},
			Bytes: embedding.A1.ObjectBytes(layout, lineCols, embedding.Float32),
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, _, err := l.p.supply(ctx, &req)
	if err != nil {
		t.Fatal(err)
	}
	for i := range out {
		h, road, err := out[i].wait(ctx)
		if err != nil || road != control.RoadCopy {
			t.Fatalf("item %d: %v by %q, want a copy from the Store", i, err, road)
		}
		h.buf.Release()
	}
	if s.exists != 1 || len(s.gets) != 1 || len(s.gets[0]) != 2 {
		t.Fatalf("%d exists calls, and reads of %+v, want one of each for both", s.exists, s.gets)
	}
	for _, w := range s.gets[0] {
		if !w.Exact || w.Bytes != req.Items[0].Bytes {
			t.Errorf("asked for %+v, want %d bytes exactly", w, req.Items[0].Bytes)
		}
	}
}
