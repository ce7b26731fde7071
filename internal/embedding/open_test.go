// SPDX-License-Identifier: Apache-2.0

package embedding_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"

	"afterimage/internal/embedding"
)

const sampleKey embedding.Key = "embedding@model:m@revision:default@encoder:e@dtype:torch.float32@protocol:a1@id:x"

var sampleMeta = embedding.Meta{
	Rows: 4, Cols: 8, DType: embedding.Float32,
	Layout: embedding.Layout{Parts: []embedding.Part{
		{Tokens: []int32{1, 2}},
		{Rows: 3, Positions: 2, NonCausal: true, MRoPE: make([]embedding.MRoPE, 3)},
		{Rows: 1, Positions: 1},
		{Tokens: []int32{3}},
	}},
}

var sampleContract = embedding.Contract{Rows: 4, Cols: 8, DType: embedding.Float32}

// sample returns a valid object of sampleKey.
func sample(t testing.TB, p embedding.Protocol) []byte {
	t.Helper()
	obj := make([]byte, p.ObjectBytes(sampleMeta.Layout, sampleMeta.Cols, sampleMeta.DType))
	for i := p.PayloadOffset(sampleMeta.Layout); i < len(obj); i++ {
		obj[i] = byte(i * 7)
	}
	if err := p.Seal(obj, sampleKey, sampleMeta); err != nil {
		t.Fatal(err)
	}
	return obj
}

// Every single flipped bit of an a1 object is noticed, and told by its kind.
func TestA1NoticesEveryBit(t *testing.T) {
	obj := sample(t, embedding.A1)
	off := embedding.A1.PayloadOffset(sampleMeta.Layout)
	for i := range obj {
		for bit := range 8 {
			obj[i] ^= 1 << bit
			want := embedding.ErrMalformed
			if i >= off {
				want = embedding.ErrCorrupt
			}
			if _, _, err := embedding.A1.Open(obj, sampleKey, sampleContract); !errors.Is(err, want) {
				t.Fatalf("bit %d of byte %d flipped: got %v, want %v", bit, i, err, want)
			}
			obj[i] ^= 1 << bit
		}
	}
}

func TestOpenRefusesEveryOtherLength(t *testing.T) {
	for _, p := range []embedding.Protocol{embedding.V3, embedding.A1} {
		obj := sample(t, p)
		for n := range obj {
			if _, _, err := p.Open(obj[:n], sampleKey, sampleContract); !errors.Is(err, embedding.ErrMalformed) {
				t.Fatalf("%s cut to %d of %d: got %v, want ErrMalformed", p, n, len(obj), err)
			}
		}
		if _, _, err := p.Open(append(obj, 0), sampleKey, sampleContract); !errors.Is(err, embedding.ErrMalformed) {
			t.Errorf("%s with a byte more: got %v, want ErrMalformed", p, err)
		}
	}
}

// A Checker gives the verdict of Open, whatever the pieces are.
func TestCheckerInPieces(t *testing.T) {
	verdict := func(c *embedding.Checker, obj []byte, pieces func(n int) int) error {
		for n := 0; n < len(obj); {
			n += min(len(obj)-n, pieces(n))
			c.Feed(obj, n)
		}
		_, _, err := c.Open(obj, sampleKey, sampleContract)
		return err
	}
	var c embedding.Checker
	f := func(p embedding.Protocol, obj []byte) {
		t.Helper()
		_, _, want := p.Open(obj, sampleKey, sampleContract)
		for size := 1; size <= len(obj); size++ {
			c.Reset(p)
			if got := verdict(&c, obj, func(int) int { return size }); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s in pieces of %d: got %v, want %v", p, size, got, want)
			}
		}
	}
	for _, p := range []embedding.Protocol{embedding.V3, embedding.A1, "x"} {
		obj := sample(t, embedding.A1)
		if p == embedding.V3 {
			obj = sample(t, p)
		}
		f(p, obj)
		for i := 0; i < len(obj); i += 5 {
			obj[i] ^= 4
			f(p, obj)
			obj[i] ^= 4
		}
		f(p, obj[:len(obj)-1])
		f(p, obj[:20])
	}
	obj := sample(t, embedding.V3)
	c.Reset(embedding.V3)
	c.Feed(obj, 10)
	c.Feed(obj, len(obj))
	if got, want := c.Sum64(), xxh3.Hash(obj); got != want {
		t.Errorf("sum %#x, want %#x", got, want)
	}
}

func TestOpenForeignKey(t *testing.T) {
	if _, _, err := embedding.A1.Open(sample(t, embedding.A1), sampleKey+"y", sampleContract); !errors.Is(err, embedding.ErrForeign) {
		t.Errorf("got %v, want ErrForeign", err)
	}
}

func TestOpenUnknownProtocol(t *testing.T) {
	if _, _, err := embedding.Protocol("v2").Open(sample(t, embedding.V3), sampleKey, sampleContract); !errors.Is(err, embedding.ErrMalformed) {
		t.Errorf("got %v, want ErrMalformed", err)
	}
}

func TestOpenContract(t *testing.T) {
	for _, p := range []embedding.Protocol{embedding.V3, embedding.A1} {
		obj := sample(t, p)
		f := func(ok bool, change func(*embedding.Contract)) {
			t.Helper()
			c := sampleContract
			change(&c)
			_, _, err := p.Open(obj, sampleKey, c)
			if ok && err != nil || !ok && !errors.Is(err, embedding.ErrContract) {
				t.Errorf("%s, %+v: got %v", p, c, err)
			}
		}
		f(true, func(c *embedding.Contract) {})
		f(true, func(c *embedding.Contract) { c.Rows, c.MaxRows = 0, 4 })
		f(false, func(c *embedding.Contract) { c.Rows = 3 })
		f(false, func(c *embedding.Contract) { c.Rows, c.MaxRows = 0, 3 })
		f(false, func(c *embedding.Contract) { c.Rows = 0 })
		f(false, func(c *embedding.Contract) { c.Cols = 4 })
		f(false, func(c *embedding.Contract) { c.DType = embedding.Float16 })
	}
}

// resum repairs the head sum of an a1 object, as a writer with bad intent would.
func resum(obj []byte) {
	if len(obj) < 64 {
		return
	}
	le := binary.LittleEndian
	n := min(uint64(le.Uint32(obj[12:])), uint64(len(obj)-64))
	le.PutUint64(obj[40:], xxh3.Hash(obj[64+n:]))
	le.PutUint64(obj[48:], xxh3.HashString(string(sampleKey)))
	var h xxh3.Hasher
	_, _ = h.Write(obj[:56])
	_, _ = h.Write(obj[64 : 64+n])
	le.PutUint64(obj[56:], h.Sum64())
}

// Heads with right sums and wrong contents, each one change away from a valid object.
func TestA1HostileHead(t *testing.T) {
	le := binary.LittleEndian
	f := func(name string, change func(obj []byte)) {
		t.Helper()
		obj := sample(t, embedding.A1)
		change(obj)
		resum(obj)
		if _, _, err := embedding.A1.Open(obj, sampleKey, sampleContract); !errors.Is(err, embedding.ErrMalformed) {
			t.Errorf("%s: got %v, want ErrMalformed", name, err)
		}
	}
	f("version", func(o []byte) { o[4] = 2 })
	f("reserved", func(o []byte) { o[6] = 1 })
	f("dtype", func(o []byte) { o[8] = 1 })
	f("layout not aligned", func(o []byte) { o[12]++ })
	f("layout beyond the object", func(o []byte) { le.PutUint32(o[12:], 0xffffffc0) })
	f("rows x cols wraps to the payload", func(o []byte) { le.PutUint64(o[16:], 1<<62+4) })
	f("rows with bit 63", func(o []byte) { le.PutUint64(o[16:], 1<<63|4) })
	f("payload bytes", func(o []byte) { le.PutUint64(o[32:], 1<<63) })
	f("part count", func(o []byte) { le.PutUint32(o[64:], 0xffffffff) })
	f("part count one less", func(o []byte) { le.PutUint32(o[64:], 3) })
	f("part kind", func(o []byte) { o[68] = 3 })
	f("flags on text", func(o []byte) { o[69] = 1 })
	f("part reserved", func(o []byte) { o[70] = 1 })
	f("token count", func(o []byte) { le.PutUint32(o[72:], 0x7fffffff) })
	f("token count 0", func(o []byte) { le.PutUint32(o[72:], 0) })
	f("positions on text", func(o []byte) { o[76] = 1 })
	f("negative token", func(o []byte) { o[83] = 0x80 })
	f("row count", func(o []byte) { le.PutUint32(o[92:], 0x7fffffff) })
	f("row count with bit 31", func(o []byte) { le.PutUint32(o[92:], 0xffffffff) })
	f("positions", func(o []byte) { le.PutUint32(o[96:], 0xffffffff) })
	f("rows of the layout", func(o []byte) { o[100+48+4] = 2 })
	f("padding", func(o []byte) { o[64+127] = 1 })
}

// A layout section longer than its parts need would give one layout two encodings.
func TestA1SpareLayoutBlock(t *testing.T) {
	obj := sample(t, embedding.A1)
	off := embedding.A1.PayloadOffset(sampleMeta.Layout)
	obj = slices.Insert(obj, off, make([]byte, 64)...)
	binary.LittleEndian.PutUint32(obj[12:], uint32(off))
	resum(obj)
	if _, _, err := embedding.A1.Open(obj, sampleKey, sampleContract); !errors.Is(err, embedding.ErrMalformed) {
		t.Errorf("got %v, want ErrMalformed", err)
	}
}

// A layout out of proportion to its rows is refused before it is read.
func TestA1HugeLayout(t *testing.T) {
	obj := slices.Insert(sample(t, embedding.A1), 64+128, make([]byte, 1<<20)...)
	binary.LittleEndian.PutUint32(obj[12:], 128+1<<20)
	resum(obj)
	n := testing.AllocsPerRun(10, func() {
		if _, _, err := embedding.A1.Open(obj, sampleKey, sampleContract); !errors.Is(err, embedding.ErrMalformed) {
			t.Errorf("got %v, want ErrMalformed", err)
		}
	})
	if n > 10 {
		t.Errorf("%v allocations for a refusal", n)
	}
}

func TestV3HostileHeader(t *testing.T) {
	f := func(header string, payload int) {
		t.Helper()
		h, err := hex.DecodeString(header)
		if err != nil {
			t.Fatal(err)
		}
		c := embedding.Contract{MaxRows: 1 << 40, Cols: 4, DType: embedding.Float32}
		if _, _, err := embedding.V3.Open(append(h, make([]byte, payload)...), "k", c); !errors.Is(err, embedding.ErrMalformed) {
			t.Errorf("got %v, want ErrMalformed", err)
		}
	}
	f("4e4f4f4e0000000001000000000000000400000000000000", 16) // magic
	f("4e4f4f4d0100000001000000000000000400000000000000", 16) // dtype
	f("4e4f4f4d0000000000000000000000000400000000000000", 0)  // no rows
	f("4e4f4f4d0000000001000000000000000000000000000000", 0)  // no columns
	f("4e4f4f4d0000000001000000000000400400000000000000", 16) // rows x cols x 4 wraps to 16
	f("4e4f4f4d00000000ffffffffffffffff0400000000000000", 16)
	f("4e4f4f4d0000000000000000010000000000000001000000", 0) // 2^32 x 2^32 wraps to 0
}

func FuzzOpenV3(f *testing.F) {
	f.Add(sample(f, embedding.V3))
	f.Add(readFile(f, "store/obj_bfloat16_3x5.bin"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, obj []byte) { fuzzOpen(t, embedding.V3, obj) })
}

// FuzzOpenA1 repairs the sums when asked, so that the fuzzer reaches what they guard.
func FuzzOpenA1(f *testing.F) {
	f.Add(sample(f, embedding.A1), false)
	f.Add(sample(f, embedding.A1), true)
	f.Add([]byte("AFI1"), true)
	f.Fuzz(func(t *testing.T, obj []byte, repair bool) {
		if repair {
			resum(obj)
		}
		fuzzOpen(t, embedding.A1, obj)
	})
}

// fuzzOpen opens obj under a contract as wide as its dtype allows. Whatever opens must seal to the
// same bytes: the formats are canonical.
func fuzzOpen(t *testing.T, p embedding.Protocol, obj []byte) {
	for _, d := range []embedding.DType{embedding.Float32, embedding.Float16, embedding.BFloat16} {
		for cols := range 9 {
			m, payload, err := p.Open(obj, sampleKey, embedding.Contract{MaxRows: 1 << 31, Cols: cols, DType: d})
			if err != nil {
				continue
			}
			if m.PayloadBytes() != len(payload) || m.Rows <= 0 || m.Cols <= 0 {
				t.Fatalf("%+v with %d payload bytes", m, len(payload))
			}
			again := bytes.Clone(obj)
			clear(again[:len(obj)-len(payload)])
			if err := p.Seal(again, sampleKey, m); err != nil || !bytes.Equal(again, obj) {
				t.Fatalf("%+v seals otherwise: %v", m, err)
			}
		}
	}
}

func TestOpenAllocatesOnlyTheLayout(t *testing.T) {
	obj := sample(t, embedding.A1)
	n := testing.AllocsPerRun(100, func() {
		if _, _, err := embedding.A1.Open(obj, sampleKey, sampleContract); err != nil {
			t.Fatal(err)
		}
	})
	if n > 4 { // the parts, two runs of tokens, one of positions
		t.Errorf("%v allocations, want 4", n)
	}
}
