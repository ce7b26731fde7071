// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"encoding/hex"
	"fmt"

	"github.com/zeebo/xxh3"
)

// SelfCheck recomputes a few names and objects whose right value is built in. Every role calls it
// before it serves: a process that names things differently would share nothing with the others and
// show no error at all. The error names what differs.
func SelfCheck() error {
	for _, v := range selfCheckVectors {
		if got := v.compute(); got != v.want {
			return fmt.Errorf("embedding: self check of %s gave %s, want %s: this build must not join a fleet", v.name, got, v.want)
		}
	}
	return nil
}

// selfCheckVectors hold on every platform and for as long as the formats keep their version.
var selfCheckVectors = []struct {
	name    string
	compute func() string
	want    string
}{
	{"the digest", func() string { return DigestOf([]byte("afterimage")).String() },
		"67e58194f70f8f0bec5f1c3a463dc1b3714df4aea52caee550d921e6019f3505"},
	{"an identifier without options", func() string {
		return string(NewIdentifier(DigestOf(nil), Processing{Background: DefaultBackground}, false, nil))
	}, "74c1ddb82429cd10478b5bacf08d953bcbd278c5b1cd131ae9eef1d005bedc40"},
	{"an identifier with all options", func() string {
		p := Processing{Background: [3]uint8{1, 2, 3}, IgnoreOrientation: true, Square: 224, MinPixels: 3136, MaxPixels: 12845056}
		return string(NewIdentifier(DigestOf([]byte("afterimage")), p, true, []byte("salt")))
	}, "eab558fcd6a99cc30122c7723151dd4070d8eec379c8330a186f9068c5eff0fd"},
	{"an identifier of vLLM", func() string {
		return string(VLLMNaming{Model: "models/m", Hash: "sha256"}.Identifier([]byte("afterimage"), false))
	}, "dc42b0202d1b788522515b1358fb0e322d0753775b3eec09228b95070f0702d7"},
	{"a key", func() string { return string(selfCheckKey(A1)) },
		"team@embedding@model:m@revision:default@encoder:e@dtype:torch.float16@protocol:a1@id:x"},
	{"a v3 object", func() string { return hex.EncodeToString(selfCheckObject(V3)) },
		"4e4f4f4d0b00000002000000000000000300000000000000" + "000102030405060708090a0b"},
	{"an a1 object", func() string { return fmt.Sprintf("%016x", xxh3.Hash(selfCheckObject(A1))) },
		"b46e827a79067a0e"},
}

func selfCheckKey(p Protocol) Key {
	return Namespace{Prefix: "team", Model: "m", Encoder: "e", DType: Float16, Protocol: p}.Key("x")
}

// selfCheckObject seals 2 x 3 float16 whose bytes count up from 0; nil if that fails.
func selfCheckObject(p Protocol) []byte {
	l := Layout{Parts: []Part{
		{Tokens: []int32{7, 8}},
		{Rows: 2, Positions: 1, NonCausal: true, MRoPE: []MRoPE{{T: 1, Y: 2, X: 3, Z: 4}, {T: 5, Y: 6, X: 7, Z: 8}}},
		{Tokens: []int32{9}},
	}}
	obj := make([]byte, p.ObjectBytes(l, 3, Float16))
	for i, payload := 0, obj[p.PayloadOffset(l):]; i < len(payload); i++ {
		payload[i] = byte(i)
	}
	if p.Seal(obj, selfCheckKey(p), Meta{Rows: 2, Cols: 3, DType: Float16, Layout: l}) != nil {
		return nil
	}
	return obj
}
