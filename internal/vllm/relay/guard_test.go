// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// TestGuards: objects that a worker must never see are not even reserved for.
func TestGuards(t *testing.T) {
	r := newRig(t)
	r.taught(t)
	rows := small.patches() / merge
	good := object(rows, cols, 12, 1)
	nan := bytes.Clone(good)
	nan[len(nan)-1], nan[len(nan)-2] = 0x7f, 0x80
	magic := bytes.Clone(good)
	magic[0]++
	for n, c := range []struct {
		name   string
		object []byte
		want   Result
	}{
		{"more rows", object(rows+1, cols, 12, 1), StoreErr}, // of another size than was asked for
		{"width and rows exchanged", object(cols, rows, 12, 1), Contract},
		{"half as wide, twice as many rows", object(2*rows, cols/2, 12, 1), Contract},
		{"float32", object(rows, cols/2, 0, 1), Contract},
		{"float16", object(rows, cols, 11, 1), Contract},
		{"another dtype", object(rows, cols, 5, 1), Corrupt},
		{"truncated", good[:len(good)-1], StoreErr},
		{"oversized", append(bytes.Clone(good), 0), StoreErr},
		{"no header", make([]byte, len(good)), Corrupt},
		{"wrong magic", magic, Corrupt},
		{"not finite", nan, Corrupt},
	} {
		p := picture(100+n, 224, 224)
		r.store.set(key(p), c.object)
		before := r.reserves()
		if got := r.one(t, p); got.Result != c.want || got.Transfer != "" || r.reserves() != before {
			t.Errorf("%s: %+v, %d reservations", c.name, got, r.reserves()-before)
		}
	}
}

// TestFirstObject: the object that teaches width and merge has to fit its grid.
func TestFirstObject(t *testing.T) {
	for name, o := range map[string][]byte{
		"63 rows": object(63, cols, 12, 1), "more rows than patches": object(512, cols, 12, 1), "two patches to a row": object(128, cols, 12, 1),
	} {
		r := newRig(t)
		p := picture(0, 224, 224)
		r.Learn(p, p.UUID, small)
		r.store.set(key(p), o)
		if got := r.one(t, p); got.Result != Contract || r.reserves() != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestSum: the first sight of an object makes its sum; from then on another one under its name goes.
func TestSum(t *testing.T) {
	r := newRig(t)
	r.taught(t)
	p := picture(0, 224, 224)
	there := func(k embedding.Key, want bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("%s is there: %t", k, want), func() bool { return len(r.store.get(k)) > 0 == want })
	}
	there(sumKey(key(p)), true)
	again := func() Brought { r.recent.drop(p.UUID); return r.one(t, p) }
	good := r.store.get(key(p))
	bad := bytes.Clone(good)
	bad[30] ^= 1
	r.store.set(key(p), bad)
	before := r.reserves()
	if got := again(); got.Result != Corrupt || r.reserves() != before {
		t.Errorf("got %+v", got)
	}
	there(key(p), false)
	there(sumKey(key(p)), false)
	r.store.set(key(p), bad) // an Encoder has made it anew
	if got := again(); got.Transfer == "" {
		t.Errorf("got %+v", got)
	}
	there(sumKey(key(p)), true)
	// A sum that is none is a thing to be made, not a reason.
	r.store.set(sumKey(key(p)), make([]byte, sumBytes))
	if got := again(); got.Transfer == "" {
		t.Errorf("got %+v", got)
	}
}

// TestNames: a client's name for a picture is worth nothing without what an Encoder said of it, with this very content.
func TestNames(t *testing.T) {
	r := newRig(t)
	r.taught(t)
	known := picture(0, 224, 224)
	liar := known
	liar.Content = "another file"
	if got := r.one(t, liar); got.Result != Unknown {
		t.Errorf("a file under the name of another: %+v", got)
	}
	liar.Content = ""
	if got := r.one(t, liar); got.Result != Unknown {
		t.Errorf("a name without a file: %+v", got)
	}
	own := known
	own.UUID = "cat"
	if got := r.one(t, own); got.Result != Unknown {
		t.Errorf("a name that no Encoder was told: %+v", got)
	}
	r.Learn(own, "cat", small)
	r.store.set(namespace.Key("cat"), r.store.get(key(known)))
	if got := r.one(t, own); got.Hash != "cat" || got.Transfer == "" {
		t.Errorf("a name that an Encoder was told with this file: %+v", got)
	}
	own.Content = "another file"
	if got := r.one(t, own); got.Result != Unknown {
		t.Errorf("that name with another file: %+v", got)
	}
	wider := picture(30, 336, 224)
	wider.UUID = "cat"
	r.Learn(wider, "cat", wide)
	own.Content = known.Content
	both := r.Bring(t.Context(), r.consumer.Address(), []Picture{own, wider})
	if got := both.Items; got[0].Transfer == "" || got[1].Result != Unknown {
		t.Errorf("one name for two sizes: %+v", got)
	}
	both.End(true)
	opts := known
	opts.Options = `{"max_pixels":50176}`
	if got := r.one(t, opts); got.Result != Unknown {
		t.Errorf("options that no Encoder was given: %+v", got)
	}
	r.Learn(opts, "hash of both", Grid{1, 8, 8})
	r.store.set(namespace.Key("hash of both"), object(16, cols, 12, 3))
	if got := r.one(t, opts); got.Hash != "hash of both" || got.Grid != (Grid{1, 8, 8}) || got.Transfer == "" {
		t.Errorf("options that an Encoder was given: %+v", got)
	}
}

// TestSpoiled: a size that Encoders laid out in different ways is left to them.
func TestSpoiled(t *testing.T) {
	r := newRig(t)
	r.taught(t)
	r.Learn(picture(20, 224, 224), "x", wide)
	r.Learn(picture(21, 224, 224), "y", wide)
	if got := r.one(t, picture(0, 224, 224)); got.Result != Unknown {
		t.Errorf("got %+v", got)
	}
}

// TestStoreFaults: whatever the Store does, the request goes on.
func TestStoreFaults(t *testing.T) {
	r := newRig(t)
	r.taught(t)
	p := picture(0, 224, 224)
	for _, err := range []error{store.ErrUnavailable, store.ErrRejected, store.ErrUnconfirmed} {
		r.store.mu.Lock()
		r.store.err = fmt.Errorf("x: %w", err)
		r.store.mu.Unlock()
		r.recent.drop(p.UUID)
		if got := r.one(t, p); got.Result != StoreErr {
			t.Errorf("%v: got %+v", err, got)
		}
		r.recent.put(p.UUID) // now it is reserved for before the Store is asked
		if got := r.one(t, p); got.Result != StoreErr {
			t.Errorf("%v: got %+v", err, got)
		}
		r.empty(t)
	}
	r.store.mu.Lock()
	r.store.err, r.store.hold = nil, make(chan struct{})
	r.store.mu.Unlock()
	r.reader.cfg.StoreTimeout = 50 * time.Millisecond
	if got := r.one(t, p); got.Result != StoreErr {
		t.Errorf("a Store that stands still: got %+v", got)
	}
	r.empty(t)
}

// TestParseGrid: grids are three small numbers, and nothing else.
func TestParseGrid(t *testing.T) {
	f := func(raw string, want bool) {
		t.Helper()
		if g, ok := ParseGrid([]byte(raw)); ok != want || ok && g != small {
			t.Errorf("%s: %v, %t", raw, g, ok)
		}
	}
	f("[1,16,16]", true)
	f(" [[1, 16, 16]] ", true)
	for _, bad := range []string{"", "null", "[]", "[1,16]", "[1,16,16,16]", "[0,16,16]", "[1,-1,16]", "[1,1.5,16]", "[1,99999,16]", "[[1,16,16],[1,16,16]]", `"x"`, "{}"} {
		f(bad, false)
	}
}

// TestChecksum: what is not a sum of this key is none.
func TestChecksum(t *testing.T) {
	var sum [sumBytes]byte
	o := object(4, 4, 12, 1)
	writeSum(sum[:], "k", o)
	if err := checkSum(sum[:], "k", o); err != nil {
		t.Error(err)
	}
	if err := checkSum(sum[:], "other", o); !errors.Is(err, errNoSum) {
		t.Errorf("another key: %v", err)
	}
	for i := range sum {
		bad := sum
		bad[i] ^= 0x80
		if err := checkSum(bad[:], "k", o); !errors.Is(err, errNoSum) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
	for i := range o {
		bad := bytes.Clone(o)
		bad[i] ^= 1
		if err := checkSum(sum[:], "k", bad); !errors.Is(err, embedding.ErrCorrupt) {
			t.Errorf("object byte %d: %v", i, err)
		}
	}
	if err := checkSum(sum[:], "k", o[:len(o)-1]); !errors.Is(err, embedding.ErrCorrupt) {
		t.Errorf("a shorter object: %v", err)
	}
}
