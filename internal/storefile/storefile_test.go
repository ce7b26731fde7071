// SPDX-License-Identifier: Apache-2.0

package storefile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/storefile"
)

// sample is a record and its object.
type sample struct {
	rec storefile.Record
	obj []byte
}

// samples are sound objects of both formats.
func samples(t testing.TB, n int) []sample {
	t.Helper()
	var out []sample
	for i := range n {
		p := []embedding.Protocol{embedding.V3, embedding.A1}[i%2]
		l := embedding.Layout{Parts: []embedding.Part{{Tokens: []int32{7}}, {Rows: 2 + i, Positions: 2 + i}}}
		m := embedding.Meta{Rows: 2 + i, Cols: 4, DType: embedding.Float16, Layout: l}
		key := embedding.Namespace{Model: "m", Encoder: "e", DType: m.DType, Protocol: p}.Key(embedding.Identifier(fmt.Sprint(i)))
		obj := make([]byte, p.ObjectBytes(l, m.Cols, m.DType))
		for j := p.PayloadOffset(l); j < len(obj); j++ {
			obj[j] = byte(i*31 + j%7)
		}
		if err := p.Seal(obj, key, m); err != nil {
			t.Fatal(err)
		}
		rec := storefile.Record{Key: key, Bytes: int64(len(obj))}
		if i%3 == 1 {
			rec.Tenant, rec.TTL, rec.SoftPin = "acme", time.Duration(i)*time.Minute, true
		}
		out = append(out, sample{rec, obj})
	}
	return out
}

var created = time.Unix(1_700_000_000, 0)

// write returns a whole file and where each record begins; the last border is that of the index.
func write(t testing.TB, all []sample) (file []byte, borders []int64) {
	t.Helper()
	var b bytes.Buffer
	w, err := storefile.NewWriter(&b, created)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		borders = append(borders, w.Bytes())
		if err := w.Add(s.rec, s.obj); err != nil {
			t.Fatal(err)
		}
	}
	borders = append(borders, w.Bytes())
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), borders
}

// open returns a reader of either kind.
func open(file []byte, stream bool) (*storefile.Reader, error) {
	if stream {
		return storefile.NewReader(iotest.HalfReader(bytes.NewReader(file)))
	}
	return storefile.Open(bytes.NewReader(file), int64(len(file)))
}

// read reads a file to its end and returns what was good, the number of lost records, and why it ended.
func read(file []byte, stream bool) (good []sample, lost int, err error) {
	r, err := open(file, stream)
	if err != nil {
		return nil, 0, err
	}
	for {
		rec, err := r.Next()
		switch {
		case errors.Is(err, storefile.ErrRecord) && !errors.Is(err, storefile.ErrBroken):
			lost++
			continue
		case err != nil:
			return good, lost, err
		case rec.Bytes > int64(len(file)):
			continue // would not fit the file
		}
		obj := make([]byte, rec.Bytes)
		switch err := r.Object(obj); {
		case errors.Is(err, storefile.ErrRecord):
			lost++
		case err != nil:
			return good, lost, err
		default:
			good = append(good, sample{rec, obj})
		}
	}
}

// same says whether two samples agree in all that users see.
func same(a, b sample) bool {
	return a.rec.Key == b.rec.Key && a.rec.Tenant == b.rec.Tenant && a.rec.Bytes == b.rec.Bytes && a.rec.TTL == b.rec.TTL &&
		a.rec.SoftPin == b.rec.SoftPin && bytes.Equal(a.obj, b.obj)
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 7} {
		all := samples(t, n)
		file, _ := write(t, all)
		for _, stream := range []bool{false, true} {
			got, lost, err := read(file, stream)
			if err != io.EOF || lost != 0 || !slices.EqualFunc(got, all, same) {
				t.Errorf("%d objects, stream %v: %d came back, %d lost, %v", n, stream, len(got), lost, err)
			}
			r, err := open(file, stream)
			if err != nil || !r.Created().Equal(created) {
				t.Errorf("created %v, %v", r.Created(), err)
			}
			for err == nil { // objects that nobody reads are passed over
				_, err = r.Next()
			}
			if err != io.EOF || r.Offset() != int64(len(file)) {
				t.Errorf("passing over: %v at %d of %d", err, r.Offset(), len(file))
			}
		}
	}
}

// A file that is cut at any byte gives every object that is whole before the cut, and says that it is cut.
func TestTruncatedAnywhere(t *testing.T) {
	all := samples(t, 4)
	file, borders := write(t, all)
	for n := range len(file) {
		whole := 0
		for whole < len(all) && int64(n) >= borders[whole+1] {
			whole++
		}
		for _, stream := range []bool{false, true} {
			got, lost, err := read(file[:n], stream)
			want := storefile.ErrTruncated
			if n < 8 {
				want = storefile.ErrNotStoreFile
			}
			if !errors.Is(err, want) || lost != 0 || !slices.EqualFunc(got, all[:whole], same) {
				t.Fatalf("cut at %d of %d, stream %v: %d objects of %d, %d lost, %v", n, len(file), stream, len(got), whole, lost, err)
			}
		}
	}
}

// One flipped bit costs at most the record that it is in, where the file can be read anywhere, and never
// passes for another object.
func TestEveryBitFlip(t *testing.T) {
	all := samples(t, 3)
	file, borders := write(t, all)
	for bit := range 8 * len(file) {
		at := int64(bit / 8)
		bad := slices.Clone(file)
		bad[at] ^= 1 << (bit % 8)
		for _, stream := range []bool{false, true} {
			got, lost, err := read(bad, stream)
			for _, g := range got {
				if !slices.ContainsFunc(all, func(s sample) bool { return same(s, g) }) {
					t.Fatalf("bit %d of byte %d: object %s came back changed", bit%8, at, g.rec.Key)
				}
			}
			if err == io.EOF && lost == 0 {
				t.Fatalf("bit %d of byte %d, stream %v: nothing was noticed", bit%8, at, stream)
			}
			inRecord := at >= borders[0] && at < borders[len(all)]
			if inRecord && !stream && (len(got) != len(all)-1 || lost != 1 || err != io.EOF) {
				t.Fatalf("bit %d of byte %d: %d objects, %d lost, %v; want all but one", bit%8, at, len(got), lost, err)
			}
		}
	}
}

// A file that was cut anywhere, or ended, goes on from its last good record.
func TestResume(t *testing.T) {
	all := samples(t, 5)
	file, borders := write(t, all[:3])
	for _, n := range append(borders, borders[1]+20, borders[2]-1, borders[3]+9, int64(len(file))) {
		name := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(name, file[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		w, err := storefile.Resume(f, n, func(int64) {})
		if err != nil {
			t.Fatal(err)
		}
		whole := 0
		for whole < 3 && n >= borders[whole+1] {
			whole++
		}
		if w.Len() != whole {
			t.Errorf("cut at %d: %d objects kept, want %d", n, w.Len(), whole)
		}
		for i, s := range all {
			if w.Has(s.rec.Key) != (i < whole) {
				t.Errorf("cut at %d: Has(%s) = %v", n, s.rec.Key, i >= whole)
			} else if i >= whole {
				if err := w.Add(s.rec, s.obj); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := errors.Join(w.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if want, _ := write(t, all); !bytes.Equal(got, want) {
			t.Errorf("cut at %d: the file is not what one export writes", n)
		}
	}
}

func TestRefusals(t *testing.T) {
	f := func(what string, file []byte, want error) {
		t.Helper()
		for _, stream := range []bool{false, true} {
			if _, _, err := read(file, stream); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
	}
	file, _ := write(t, samples(t, 2))
	f("empty", nil, storefile.ErrNotStoreFile)
	f("text", bytes.Repeat([]byte("hello "), 100), storefile.ErrNotStoreFile)
	f("bytes behind the trailer", append(slices.Clone(file), 0), storefile.ErrBroken)
	f("two files", append(slices.Clone(file), file...), storefile.ErrBroken)
	w, err := storefile.NewWriter(io.Discard, created)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range []storefile.Record{{}, {Key: embedding.Key(make([]byte, 5000))}, {Key: "k", TTL: -1}, {Key: "k", Tenant: string(make([]byte, 300))}} {
		if err := w.Add(rec, []byte{1}); err == nil {
			t.Errorf("%+v was written", rec)
		}
	}
	if err := w.Add(storefile.Record{Key: "k"}, nil); err == nil {
		t.Error("an empty object was written")
	}
}

// The writer of a full disk fails for good.
func TestWriterFails(t *testing.T) {
	w, err := storefile.NewWriter(&full{room: 1 << 20}, created)
	if err != nil {
		t.Fatal(err)
	}
	obj := make([]byte, 300<<10)
	for range 10 {
		if err = w.Add(storefile.Record{Key: "k"}, obj); err != nil {
			break
		}
	}
	if !errors.Is(err, errFull) || !errors.Is(w.Close(), errFull) {
		t.Errorf("got %v", err)
	}
}

var errFull = errors.New("no space left")

type full struct{ room int }

func (f *full) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// FuzzReader: whatever a file holds, reading ends, and what comes back has the sums that it claims.
func FuzzReader(f *testing.F) {
	file, borders := write(f, samples(f, 3))
	f.Add(file, false)
	f.Add(file[:borders[2]+5], true)
	empty, _ := write(f, nil)
	f.Add(empty, false)
	f.Fuzz(func(t *testing.T, file []byte, stream bool) {
		got, _, err := read(file, stream)
		if err == nil {
			t.Error("reading ended without a reason")
		}
		if len(got) > len(file)/50 {
			t.Errorf("%d objects from %d bytes", len(got), len(file))
		}
	})
}
