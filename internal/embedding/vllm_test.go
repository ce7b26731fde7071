// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strings"
	"testing"
)

// The vectors of whole files are checked in package media, which tells their modes.

func TestVLLMDefaultEncoder(t *testing.T) {
	sum := md5.Sum([]byte("[None, 'weights', None, None, True]"))
	if got := hex.EncodeToString(sum[:]); got != VLLMDefaultEncoder {
		t.Errorf("%s, want %s", VLLMDefaultEncoder, got)
	}
}

func TestVLLMNamingRefuses(t *testing.T) {
	for _, c := range []struct {
		naming VLLMNaming
		want   string
	}{
		{VLLMNaming{}, "model path"},
		{VLLMNaming{Model: "m", Hash: "md5"}, "want blake3, sha256 or sha512"},
	} {
		if err := c.naming.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.naming, err, c.want)
		}
	}
	for _, hash := range []string{"", "blake3", "sha256", "sha512"} {
		if err := (VLLMNaming{Model: "m", Hash: hash}).Validate(); err != nil {
			t.Errorf("%q: %v", hash, err)
		}
	}
	if a, b := (VLLMNaming{Model: "m"}).Identifier(nil, true), (VLLMNaming{Model: "m", Hash: "blake3"}).Identifier(nil, true); a != b {
		t.Error("blake3 is not the default")
	}
}

// convert1 converts one value.
func convert1(t *testing.T, to DType, src []byte, from DType) []byte {
	t.Helper()
	dst := make([]byte, to.Bytes())
	if err := Convert(dst, to, src, from); err != nil {
		t.Fatal(err)
	}
	return dst
}

func bits32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func bits16(v uint16) []byte { return binary.LittleEndian.AppendUint16(nil, v) }

// Each 16-bit value keeps its bits on the way through float32, the NaNs their being one.
func TestConvertKeepsShortValues(t *testing.T) {
	for _, d := range []DType{Float16, BFloat16} {
		for v := range 1 << 16 {
			wide := convert1(t, Float32, bits16(uint16(v)), d)
			back := binary.LittleEndian.Uint16(convert1(t, d, wide, Float32))
			f := math.Float32frombits(binary.LittleEndian.Uint32(wide))
			if nan := f != f; nan && CheckFinite(bits16(back), d) == nil || !nan && back != uint16(v) {
				t.Fatalf("%v %#04x became %v and %#04x", d, v, f, back)
			}
		}
	}
}

// Between two neighbours the nearer one is taken, and half-way the even one.
func TestConvertRounds(t *testing.T) {
	for _, d := range []DType{Float16, BFloat16} {
		top := map[DType]int{Float16: 0x7bff, BFloat16: 0x7f7f}[d]
		for v := range top {
			low := loadFloat(bits16(uint16(v)), d)
			high := loadFloat(bits16(uint16(v+1)), d)
			middle := float32((float64(low) + float64(high)) / 2)
			even := v + v&1
			for _, c := range []struct {
				f    float32
				want int
			}{{middle, even}, {math.Nextafter32(middle, 0), v}, {math.Nextafter32(middle, high), v + 1}} {
				if float64(middle) != (float64(low)+float64(high))/2 {
					continue // float32 has no such value
				}
				got := binary.LittleEndian.Uint16(convert1(t, d, bits32(math.Float32bits(c.f)), Float32))
				negative := binary.LittleEndian.Uint16(convert1(t, d, bits32(math.Float32bits(-c.f)), Float32))
				if int(got) != c.want || negative != got|0x8000 {
					t.Fatalf("%v: %v became %#04x, and its negative %#04x, want %#04x", d, c.f, got, negative, c.want)
				}
			}
		}
	}
	for f, want := range map[float32]uint16{65504: 0x7bff, 65519.996: 0x7bff, 65520: 0x7c00, 1e38: 0x7c00, float32(math.Inf(-1)): 0xfc00, 1e-8: 0} {
		if got := binary.LittleEndian.Uint16(convert1(t, Float16, bits32(math.Float32bits(f)), Float32)); got != want {
			t.Errorf("%v became float16 %#04x, want %#04x", f, got, want)
		}
	}
}

func TestConvertRefuses(t *testing.T) {
	for _, c := range []struct {
		dst, src int
		to, from DType
	}{{2, 4, BFloat16, BFloat16}, {4, 3, Float32, Float16}, {2, 4, DType(7), Float32}, {2, 4, Float16, DType(7)}} {
		if err := Convert(make([]byte, c.dst), c.to, make([]byte, c.src), c.from); err == nil {
			t.Errorf("%d bytes of %v became %d of %v", c.src, c.from, c.dst, c.to)
		}
	}
}
