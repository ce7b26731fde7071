// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The codes were computed by upstream's own struct_pack.
func TestTypeCodes(t *testing.T) {
	for lit, want := range map[typ]uint32{
		tStr:                             0x9dcffa76,
		vec(tStr):                        0x8a86e11a,
		tUUID:                            0x3c6d83e0,
		tuple(tStr, tStr):                0x7cf91ed8,
		tuple(tStr, tBool):               0xdbcf8900,
		opt(tU64):                        0x5881691a,
		boolReply:                        0x90e800d2,
		voidReply:                        0xaf2868cc,
		existReply:                       0x2a5f8c5c,
		putReply:                         0x39fc52ce,
		getReply:                         0xd659bde8,
		pingType:                         0x742a8f52,
		getType:                          0xbff0ea30,
		putLayouts[0].args:               0xf9b61cd2,
		putLayouts[1].args:               0xb532b1be,
		putLayouts[2].args:               0x4f54a72c,
		putLayouts[3].args:               0x8c0ea3b2,
		tuple(vec(tStr), tBool):          0xa389d4d8,
		expected(tuple(tI64, tI32)):      0x742a8f52,
		vec(expected(tuple(tI64, tI32))): vec(pingType).code,
	} {
		if got := lit.code; got != want {
			t.Errorf("code of % x: got %08x, want %08x", lit.literal, got, want)
		}
	}
}

func TestFunctionIDs(t *testing.T) {
	for got, want := range map[uint32]uint32{
		fnReady: 0xe833f9c8, fnPing: 0x876368aa, fnExist: 0x5b35a287, fnGet: 0x6d242501, fnGetInline: 0x0618109c, fnPut: 0x44bb4f32,
		fnRemove: 0xf1c15e2d, fnUnmap: 0x7cbfb191, fnMapped: 0xfc06d53c,
	} {
		if got != want {
			t.Errorf("function id %08x, want %08x", got, want)
		}
	}
}

func TestEncode(t *testing.T) {
	f := func(name string, got []byte, want string) {
		t.Helper()
		if h := hex.EncodeToString(got); h != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s:\n got %s\nwant %s", name, h, want)
		}
	}
	f("ping", encodeUUID(uuid{5, 6}), "e0836d3c 0500000000000000 0600000000000000")
	f("get", encodeGet([]string{"a", "b"}, []place{{1, 3}, {2, 4}}, uuid{5, 6}),
		"30eaf0bf 02 0161 0162 02 0100000000000000 0200000000000000 02 0300000000000000 0400000000000000 "+
			"ffffffff 0500000000000000 0600000000000000")
	f("exist", encodeExist([]string{"k"}), "1ae1868a 01 016b")

	long := strings.Repeat("k", 256) // one length over 255 widens all of them
	f("long exist", encodeExist([]string{long, "x"}), "1be1868a 08 0200 0001"+strings.Repeat("6b", 256)+"0100 78")
	if got := encodeExist([]string{strings.Repeat("k", 1<<16)}); hex.EncodeToString(got[:13]) != "1be1868a100100000000000100" {
		t.Errorf("exist of a key of 64 KiB starts with % x", got[:13])
	}
}

// Every layout ends with the same device and id, and differs from all others.
func TestEncodePut(t *testing.T) {
	tail := "ffffffff" + "0500000000000000" + "0600000000000000"
	for _, tc := range []struct {
		release, config string
		pin             bool
	}{
		{"0.3.13", "0100000000000000 0000000000000000 0000000000000000 00 00 00 00 00 00 00 00 00 00", false},
		{"0.3.12", "0100000000000000 0000000000000000 00 00 00 00 00 00 00 00 00", false},
		{"0.3.11", "0100000000000000 0000000000000000 00 00 00 00 00 00 00", false},
		{"0.3.10", "0100000000000000 00 00 00 00 00", false},
		{"0.3.13", "0100000000000000 0000000000000000 0000000000000000 01 00 00 00 00 00 00 00 00 00", true},
		{"0.3.12", "0100000000000000 0000000000000000 01 00 00 00 00 00 00 00 00", true},
		{"0.3.11", "0100000000000000 0000000000000000 01 00 00 00 00 00 00", true},
		{"0.3.10", "0100000000000000 01 00 00 00 00", true},
	} {
		var l *putLayout
		for i := range putLayouts {
			if putLayouts[i].release == tc.release {
				l = &putLayouts[i]
			}
		}
		got := hex.EncodeToString(encodePut(l, []string{"a"}, []place{{1, 3}}, uuid{5, 6}, tc.pin))
		want := "01" + "0161" + "01" + "0100000000000000" + "01" + "0300000000000000" + strings.ReplaceAll(tc.config, " ", "") + tail
		if got[8:] != want {
			t.Errorf("put of %s:\n got %s\nwant %s", tc.release, got[8:], want)
		}
	}
}

// Answers as the binaries of the wheels send them, with their type literal, and as others may.
func TestDecode(t *testing.T) {
	f := func(name, msg string, lit typ, n int, value func(*decoder) int64, want []result) {
		t.Helper()
		b, err := hex.DecodeString(strings.ReplaceAll(msg, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got, err := newDecoder(b, lit).results(n, value)
		if want == nil {
			if err == nil {
				t.Errorf("%s: decoded as %v, want an error", name, got)
			}
			return
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(result{})); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	f("exist false", "5d8c5f2a 04 84870b01 00 01 01 00", existReply, 1, asBool, []result{{}})
	f("no put", "cf52fc39 04 8487fa01 00 00", putReply, 0, asVoid, []result{})
	f("bare get", "e8bd59d6 02 01 0700000000000000 00 40fdffff", getReply, 2, asI64, []result{{n: 7}, {code: -704}})

	f("another type", "5d8c5f2a 04 84870b01 00 01 01 00", getReply, 1, asI64, nil)
	f("another literal", "5d8c5f2a 04 84870301 00 01 01 00", existReply, 1, asBool, nil)
	f("one result too few", "e8bd59d6 01 01 0700000000000000", getReply, 2, asI64, nil)
	f("one result too many", "e8bd59d6 02 01 0700000000000000 00 40fdffff", getReply, 1, asI64, nil)
	f("cut", "e8bd59d6 02 01 0700000000000000 00 40fd", getReply, 2, asI64, nil)
	f("count beyond the message", "e8bd59d6 ff", getReply, 255, asI64, nil)
	f("wide count beyond the message", "e9bd59d6 18 ffffffffffffffff", getReply, 1, asI64, nil)
	f("nothing", "", getReply, 0, asI64, nil)
}

// A message of any bytes yields values or an error, and never a value past its end.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", "5d8c5f2a0484870b0100010100", "e8bd59d602010700000000000000 0040fdffff", "e9bd59d618ffffffffffffffff"} {
		b, _ := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
		f.Add(b, 1)
	}
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		n &= 1023
		rs, err := newDecoder(b, getReply).results(n, asI64)
		if err == nil && (len(rs) != n || len(b) < 5+n) {
			t.Errorf("%d results of %d bytes, want %d", len(rs), len(b), n)
		}
		d := newDecoder(b, vec(tStr))
		if v := d.strs(); d.err == nil && len(v) > len(b) {
			t.Errorf("%d strings of %d bytes", len(v), len(b))
		}
	})
}

// What the encoder writes the decoder reads, for any keys.
func FuzzKeys(f *testing.F) {
	f.Add("a", "b")
	f.Add("", strings.Repeat("x", 300))
	f.Fuzz(func(t *testing.T, a, b string) {
		keys := []string{a, b}
		d := newDecoder(encodeExist(keys), vec(tStr))
		if got := d.strs(); d.err != nil || len(d.b) != 0 || !cmp.Equal(got, keys) {
			t.Errorf("%q became %q (%v, %d bytes left)", keys, got, d.err, len(d.b))
		}
	})
}
