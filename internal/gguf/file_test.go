// SPDX-License-Identifier: Apache-2.0

package gguf

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sample returns a writer with every kind of value and both tensor types.
func sample() *Writer {
	w := &Writer{}
	w.Set("general.architecture", "clip")
	w.Set("n", uint32(7))
	w.Set("i", int32(-7))
	w.Set("f", float32(0.5))
	w.Set("yes", true)
	w.Set("ints", []int32{1, -2, 3})
	w.Set("floats", []float32{0.25, 4})
	w.Set("words", []string{"a", "", "Ġred"})
	w.Set("none", []string{})
	count := func(dst []float32, off int) {
		for i := range dst {
			dst[i] = float32(off + i)
		}
	}
	w.Add("one", F32, count, 5)
	w.Add("two", F16, count, 3, 4, 2)
	w.Add("big", F32, count, 100, 300) // several chunks
	return w
}

func writeSample(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := sample().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRoundTrip(t *testing.T) {
	path := writeSample(t)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	for _, k := range f.Keys() {
		got[k], _ = f.Value(k)
	}
	want := map[string]any{
		"general.architecture": "clip", "n": uint32(7), "i": int32(-7), "f": float32(0.5), "yes": true,
		"ints": []int32{1, -2, 3}, "floats": []float32{0.25, 4}, "words": []string{"a", "", "Ġred"}, "none": []string{},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("metadata (-want +got):\n%s", d)
	}
	var names []string
	for _, tn := range f.Tensors() {
		names = append(names, tn.Name)
		if tn.Offset%defaultAlign != 0 {
			t.Errorf("tensor %q at offset %d, not a multiple of %d", tn.Name, tn.Offset, defaultAlign)
		}
	}
	if want := []string{"one", "two", "big"}; !slices.Equal(names, want) {
		t.Errorf("tensors = %q, want %q", names, want)
	}
	if st, _ := os.Stat(path); st.Size() != f.Size() || f.Path() != path {
		t.Errorf("Size, Path = %d, %q, want %d, %q", f.Size(), f.Path(), st.Size(), path)
	}
	for _, tt := range []struct {
		name string
		row  int
		want []float32
	}{
		{"one", 0, []float32{0, 1, 2, 3, 4}},
		{"two", 7, []float32{21, 22, 23}},
	} {
		if row, err := f.Row(tt.name, tt.row); err != nil || !slices.Equal(row, tt.want) {
			t.Errorf("Row(%q, %d) = %v, %v, want %v", tt.name, tt.row, row, err, tt.want)
		}
	}
	if row, err := f.Row("big", 299); err != nil || row[99] != 29999 {
		t.Errorf("last value of the last row = %v, %v, want 29999", row, err)
	}
}

func TestGetters(t *testing.T) {
	f := &File{kv: map[string]any{
		"u8": uint8(1), "u16": uint16(2), "u32": uint32(3), "u64": uint64(4),
		"i8": int8(5), "i16": int16(6), "i32": int32(7), "i64": int64(8), "neg": int32(-1),
		"f32": float32(1.5), "f64": 2.5, "s": "x", "ss": []string{"x"}, "b": true,
	}}
	for i, k := range []string{"u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"} {
		if v, ok := f.Uint(k); v != uint64(i+1) || !ok {
			t.Errorf("Uint(%q) = %d, %v, want %d, true", k, v, ok, i+1)
		}
	}
	for _, k := range []string{"neg", "s", "f32", "missing"} {
		if v, ok := f.Uint(k); ok {
			t.Errorf("Uint(%q) = %d, true, want false", k, v)
		}
	}
	a, okA := f.Float("f32")
	b, okB := f.Float("f64")
	_, okC := f.Float("u8")
	if a != 1.5 || b != 2.5 || !okA || !okB || okC {
		t.Errorf("Float = %v %v, %v %v, u8 %v, want 1.5 true, 2.5 true, false", a, okA, b, okB, okC)
	}
	if v, ok := f.String("s"); v != "x" || !ok {
		t.Errorf("String = %q, %v, want x, true", v, ok)
	}
	if _, ok := f.String("u8"); ok {
		t.Error("String of a number: true, want false")
	}
	if v, ok := f.Strings("ss"); len(v) != 1 || !ok {
		t.Errorf("Strings = %q, %v, want one, true", v, ok)
	}
	if v, ok := f.Bool("b"); !v || !ok {
		t.Errorf("Bool = %v, %v, want true, true", v, ok)
	}
}

// TestRowsOfQuantisedTypes compares two blocks of random bits per type with the values that the
// reference implementation (Python package gguf 0.19.0) gives.
func TestRowsOfQuantisedTypes(t *testing.T) {
	b, err := os.ReadFile("testdata/rows.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string]struct {
		Raw    string
		Values []float32
	}
	if err := json.Unmarshal(b, &golden); err != nil {
		t.Fatal(err)
	}
	for _, typ := range []Type{Q4_0, Q4_1, Q8_0, Q6_K} {
		want := golden[typ.String()]
		raw, err := hex.DecodeString(want.Raw)
		if err != nil || len(raw) == 0 {
			t.Fatalf("%v: golden row of %d bytes: %v", typ, len(raw), err)
		}
		path := filepath.Join(t.TempDir(), "row")
		if err := os.WriteFile(path, append([]byte("head"), raw...), 0o600); err != nil {
			t.Fatal(err)
		}
		tn := Tensor{Name: "t", Type: typ, Dims: []int64{int64(len(want.Values)), 1}, Offset: 4}
		got, err := (&File{path: path, tensors: map[string]Tensor{"t": tn}}).Row("t", 0)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want.Values) {
			t.Errorf("%v: decoded row differs from the reference:\n got %v\nwant %v", typ, got, want.Values)
		}
	}
}

func TestRowErrors(t *testing.T) {
	f, err := Open(writeSample(t))
	if err != nil {
		t.Fatal(err)
	}
	f.tensors["odd"] = Tensor{Name: "odd", Type: 30, Dims: []int64{4}}
	for _, tt := range []struct {
		name string
		row  int
		want string
	}{
		{"missing", 0, `no tensor "missing"`},
		{"two", 8, "no row 8, only 8 rows"},
		{"two", -1, "no row -1"},
		{"odd", 0, "type BF16, which cannot be read"},
	} {
		if _, err := f.Row(tt.name, tt.row); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Row(%q, %d): error %v, want one with %q", tt.name, tt.row, err, tt.want)
		}
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pipe, filepath.Join(dir, "missing")} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Open(%s): error %v, want one that names the path", path, err)
		}
	}
}

func TestWriterReportsMisuse(t *testing.T) {
	none := func([]float32, int) {}
	for want, use := range map[string]func(*Writer){
		"type int":        func(w *Writer) { w.Set("k", 1) },
		"type Q8_0":       func(w *Writer) { w.Add("t", Q8_0, none, 32) },
		"dimension of 0":  func(w *Writer) { w.Add("t", F32, none, 0) },
		"has 5 dimension": func(w *Writer) { w.Add("t", F32, none, 1, 1, 1, 1, 1) },
		"too large":       func(w *Writer) { w.Add("t", F32, none, math.MaxInt64, 4) },
	} {
		w := &Writer{}
		use(w)
		path := filepath.Join(t.TempDir(), "x")
		if err := w.WriteFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
			t.Errorf("%s: a failed write left %v", want, left)
		}
	}
}
