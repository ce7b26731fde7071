// SPDX-License-Identifier: Apache-2.0

package system

import (
	"sync"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/media"
	"afterimage/internal/store"
)

// TestSecondEncoderTakesTheStoresCopy is the main job: what one Encoder encoded, the other takes from
// the Store, and the answer is the same to the byte.
func TestSecondEncoderTakesTheStoresCopy(t *testing.T) {
	f := newFleet(t, nil)
	file := picture(t, 90, 60, 1)
	first := f.ask(t, "0", file)
	f.published(t, 0)
	second := f.ask(t, "1", file)
	third := f.ask(t, "1", file)
	if got := sources(first) + " " + sources(second) + " " + sources(third); got != "encoded store local" {
		t.Errorf("sources %q, want encoded, store, local", got)
	}
	if first.Text == "" || first.Text != second.Text || first.Text != third.Text {
		t.Errorf("answers differ: %q, %q, %q", first.Text, second.Text, third.Text)
	}
	if got := f.encodes(t); got != 1 {
		t.Errorf("%v encodes, want 1", got)
	}
	if got := f.encoders[1].count(t, "afterimage_encoder_items_total", "store"); got != 1 {
		t.Errorf("%v store hits on the other Encoder, want 1", got)
	}
	it := second.Items[0]
	if it.Encoder != "encoder-1" || it.Rows != 4*3 || it.Cols != cols || it.Bytes == 0 {
		t.Errorf("trace says %+v", it)
	}
}

// TestOnlyTheUnknownOfTwoIsEncoded sends two pictures of which the Store has one.
func TestOnlyTheUnknownOfTwoIsEncoded(t *testing.T) {
	f := newFleet(t, nil)
	known, fresh := picture(t, 56, 56, 2), picture(t, 56, 56, 3)
	f.ask(t, "0", known)
	f.published(t, 0)
	if got := sources(f.ask(t, "1", known, fresh)); got != "store encoded" {
		t.Errorf("sources %q, want store encoded", got)
	}
	if got := f.encodes(t); got != 2 {
		t.Errorf("%v encodes in all, want 2", got)
	}
}

// TestEqualPicturesAtOnceAreOneEncode sends one picture in ten requests at once to one Encoder (F02).
func TestEqualPicturesAtOnceAreOneEncode(t *testing.T) {
	f := newFleet(t, func(o *options) { o.encodeTime = 30 * time.Millisecond })
	file := picture(t, 60, 60, 4)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { f.ask(t, "0", file) })
	}
	wg.Wait()
	if got := f.encodes(t); got != 1 {
		t.Errorf("%v encodes of one picture, want 1", got)
	}
}

// TestPlantedEntryIsNotTrusted (K04) plants objects with wrong rows, and of another key, under the key
// of a picture.
func TestPlantedEntryIsNotTrusted(t *testing.T) {
	f := newFleet(t, nil)
	file := picture(t, 140, 140, 5) // 25 rows
	key := f.key(t, file)
	want := f.ask(t, "0", file).Text
	f.published(t, 0)

	planted := []struct {
		name string
		rows int
		key  embedding.Key
	}{{"24 rows for 25", 24, key}, {"another key", 25, key + "x"}}
	for _, p := range planted {
		f.plant(t, key, p.key, p.rows)
		before := f.encodes(t)
		a := f.ask(t, "1", file)
		if sources(a) != "encoded" || a.Text != want || f.encodes(t) != before+1 {
			t.Errorf("%s: source %q, text %q (want %q), %v encodes more", p.name, sources(a), a.Text, want, f.encodes(t)-before)
		}
		f.published(t, 1)
		if healthy := f.ask(t, "1", picture(t, 40, 40, 6)); healthy.Text == "" {
			t.Errorf("%s: a healthy picture after it was not answered", p.name)
		}
		// The next round asks the Store again.
		f.encoders[1].cache.Remove(key)
	}
}

// key is the Store key of an image file, derived as a client of the identity rules would.
func (f *fleet) key(t *testing.T, file []byte) embedding.Key {
	t.Helper()
	info := must[media.Info](t)(media.Inspect(file, media.DefaultLimits()))
	rules := embedding.Processing{Background: embedding.DefaultBackground}
	return f.ns.Key(embedding.NewIdentifier(embedding.DigestOf(file), rules, info.Alpha, nil))
}

// plant stores an object of rows rows, sealed for name, under key, in place of what is there.
func (f *fleet) plant(t *testing.T, key, name embedding.Key, rows int) {
	t.Helper()
	f.plantWith(t, key, name, rows, func([]byte) {})
}

// plantWith is plant of a payload that fill has written.
func (f *fleet) plantWith(t *testing.T, key, name embedding.Key, rows int, fill func([]byte)) {
	t.Helper()
	f.plantLayout(t, key, name, embedding.Layout{Parts: []embedding.Part{{Rows: rows, Positions: rows}}}, fill)
}

// plantLayout is plantWith of an object with the layout l.
func (f *fleet) plantLayout(t *testing.T, key, name embedding.Key, l embedding.Layout, fill func(payload []byte)) {
	t.Helper()
	s := f.encoders[0].store
	if err := s.Remove(t.Context(), []embedding.Key{key}); err != nil {
		t.Fatal(err)
	}
	buf := must[*arena.Buf](t)(f.encoders[0].arena.Reserve(embedding.A1.ObjectBytes(l, cols, embedding.Float32)))
	defer buf.Release()
	meta := embedding.Meta{Rows: l.Rows(), Cols: cols, DType: embedding.Float32, Layout: l}
	fill(buf.Bytes()[embedding.A1.PayloadOffset(l):])
	if err := embedding.A1.Seal(buf.Bytes(), name, meta); err != nil {
		t.Fatal(err)
	}
	buf.Commit()
	if err := s.Put(t.Context(), key, buf, store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestStoreDownCostsNothingButReuse stops the Store under a fleet.
func TestStoreDownCostsNothingButReuse(t *testing.T) {
	f := newFleet(t, nil)
	file := picture(t, 56, 28, 7)
	want := f.ask(t, "0", file).Text
	f.published(t, 0)
	f.stopStore()
	a := f.ask(t, "1", file)
	if sources(a) != "encoded" || a.Text != want {
		t.Errorf("without the Store: source %q, text %q, want encoded, %q", sources(a), a.Text, want)
	}
}
