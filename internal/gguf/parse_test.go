// SPDX-License-Identifier: Apache-2.0

package gguf

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
)

// sampleBytes returns a whole file and the length of its header.
func sampleBytes(t testing.TB) (file []byte, head int) {
	t.Helper()
	var b bytes.Buffer
	w := sample()
	n, err := w.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("WriteTo = %d, %v with %d bytes written", n, err, b.Len())
	}
	return b.Bytes(), len(w.header())
}

func parseBytes(b []byte) (*File, error) { return parse(bytes.NewReader(b), int64(len(b))) }

func TestTruncatedAnywhere(t *testing.T) {
	file, head := sampleBytes(t)
	last, err := parseBytes(file)
	if err != nil {
		t.Fatal(err)
	}
	big, _ := last.Tensor("big")
	end := int(big.Offset + big.Bytes())
	check := func(n int, want string) {
		t.Helper()
		_, err := parseBytes(file[:n])
		if !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), want) {
			t.Fatalf("first %d of %d bytes: error %v, want ErrTruncated with %q", n, len(file), err, want)
		}
	}
	for n := range head - defaultAlign {
		check(n, "ends at byte")
	}
	for n := head; n < end; n += 997 {
		check(n, "but its header describes")
	}
	check(end-1, "up to tensor \"big\"")
	if _, err := parseBytes(file[:end]); err != nil {
		t.Errorf("all but the last padding: %v, want no error", err)
	}
}

// TestShrinkingFile reads a file that is shorter than its size says.
func TestShrinkingFile(t *testing.T) {
	file, head := sampleBytes(t)
	for n := range head - defaultAlign {
		if _, err := parse(bytes.NewReader(file[:n]), int64(len(file))); !errors.Is(err, ErrTruncated) {
			t.Fatalf("%d of %d bytes there: error %v, want ErrTruncated", n, len(file), err)
		}
	}
}

// start returns the first bytes of a file with the given counts.
func start(tensors, pairs uint64) []byte {
	return appendU64(appendU64(appendU32([]byte(magic), version), tensors), pairs)
}

// record appends a tensor record.
func record(b []byte, name string, typ Type, off uint64, dims ...uint64) []byte {
	b = appendU32(appendString(b, name), uint32(len(dims)))
	for _, d := range dims {
		b = appendU64(b, d)
	}
	return appendU64(appendU32(b, uint32(typ)), off)
}

func TestHostile(t *testing.T) {
	pair := func(kind uint32) []byte { return appendU32(appendString(start(0, 1), "k"), kind) }
	array := func(kind uint32, n uint64) []byte { return appendU64(appendU32(pair(kindArray), kind), n) }
	twice := appendString(appendString(start(0, 2), "k"), "")[:24+9]
	twice = append(append(appendU32(twice, kindUint8), 1), append(appendU32(appendString(nil, "k"), kindUint8), 1)...)
	align := appendU32(appendU32(appendString(start(0, 1), alignKey), kindUint32), 3)
	for name, tt := range map[string]struct {
		file []byte
		want string
		is   error
	}{
		"empty":               {nil, "the magic number", ErrTruncated},
		"another format":      {[]byte("\x89PNG\r\n\x1a\n"), `starts with "\x89PNG"`, ErrFormat},
		"version 1":           {appendU32([]byte(magic), 1), "version 1", ErrFormat},
		"big endian":          {append([]byte(magic), 0, 0, 0, 3), "little endian", ErrFormat},
		"endless pairs":       {start(0, math.MaxUint64), "the counts", ErrTruncated},
		"endless tensors":     {start(1<<62, 0), "the counts", ErrTruncated},
		"endless key":         {append(appendU64(start(0, 1), math.MaxUint64), "0123456789"...), "name of key number 1", ErrTruncated},
		"long key":            {append(appendU64(start(0, 1), 1<<16), make([]byte, 1<<17)...), "65536 bytes, at most 65535", ErrFormat},
		"endless string":      {appendU64(pair(kindString), 1<<40), "value of key k", ErrTruncated},
		"unknown value":       {append(pair(13), 0), "unknown type 13", ErrFormat},
		"array of arrays":     {array(kindArray, 1), "array of unknown type 9", ErrFormat},
		"endless strings":     {array(kindString, 1<<61), "value of key k", ErrTruncated},
		"endless numbers":     {array(kindFloat64, 1<<61), "value of key k", ErrTruncated},
		"a key twice":         {twice, `key "k" appears twice`, ErrFormat},
		"odd alignment":       {align, "general.alignment is 3", ErrFormat},
		"no dimensions":       {record(start(1, 0), "12345678", F32, 0), "0 dimensions", ErrFormat},
		"many dimensions":     {record(start(1, 0), "t", F32, 0, 1, 1, 1, 1, 1), "5 dimensions", ErrFormat},
		"zero dimension":      {record(start(1, 0), "t", F32, 0, 0), "dimension of 0", ErrFormat},
		"negative dimension":  {record(start(1, 0), "t", F32, 0, math.MaxUint64), "dimension of", ErrFormat},
		"overflowing product": {record(start(1, 0), "t", F32, 0, 1<<31, 1<<31, 1<<31), "too large", ErrFormat},
		"half a block":        {record(start(1, 0), "t", Q8_0, 0, 33), "blocks of 32", ErrFormat},
		"odd offset":          {record(start(1, 0), "t", F32, 5, 1), "not a multiple of 32", ErrFormat},
		"far offset":          {record(start(1, 0), "t", F32, 1<<63-32, 1), "beyond any file", ErrFormat},
		"farther offset":      {record(start(1, 0), "t", F32, 1<<63, 1), "beyond any file", ErrFormat},
		"unknown tensor type": {record(start(1, 0), "t", 99, 1<<30, 1), "header describes", ErrTruncated},
		"a tensor twice": {
			record(record(start(2, 0), "t", 99, 0, 1), "t", 99, 0, 1), `tensor "t" appears twice`, ErrFormat,
		},
	} {
		if _, err := parseBytes(tt.file); !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %v with %q", name, err, tt.is, tt.want)
		}
	}
}

// TestMemoryFollowsFileSize holds that a header cannot make Open allocate more than a small multiple
// of what the file holds.
func TestMemoryFollowsFileSize(t *testing.T) {
	b := appendU32(appendU32(appendString(start(0, 1), "k"), kindArray), kindString)
	b = append(appendU64(b, 100_000), make([]byte, 800_000)...) // 100,000 empty strings
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := parseBytes(b); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(4*len(b)); got > limit {
		t.Errorf("parsing %d bytes allocated %d, want at most %d", len(b), got, limit)
	}
}

func FuzzParse(f *testing.F) {
	file, head := sampleBytes(f)
	f.Add(file[:head])
	f.Add(file[:len(file)/2])
	f.Add(start(3, 3))
	f.Add(record(start(1, 0), "t", Q6_K, 0, 256, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseBytes(b)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrTruncated) {
				t.Errorf("error %v is of no known class", err)
			}
			return
		}
		for _, tn := range got.Tensors() {
			if tn.Offset < 0 || tn.Bytes() < 0 || tn.Offset+tn.Bytes() > int64(len(b)) {
				t.Errorf("tensor %+v lies outside the file of %d bytes", tn, len(b))
			}
		}
	})
}
