// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"
	"time"
)

func TestBytes(t *testing.T) {
	f := func(text string, want Bytes, canonical string) {
		t.Helper()
		var got Bytes
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q: got %d (%v), want %d", text, int64(got), err, int64(want))
		}
		if got.String() != canonical {
			t.Errorf("%q: got %s, want %s", text, got, canonical)
		}
	}
	f("0", 0, "0")
	f("1", 1, "1")
	f("1024", KiB, "1KiB")
	f("1_000", 1000, "1000")
	f(" 512MiB ", 512*MiB, "512MiB")
	f("512 mib", 512*MiB, "512MiB")
	f("1536KiB", 1536*KiB, "1536KiB")
	f("2GB", 2e9, "1953125KiB")
	f("3B", 3, "3")
	f("1TiB", 1<<40, "1TiB")
	for _, bad := range []string{"", "MiB", "-1", "1.5GiB", "1 parsec", "9223372036854775808", "9999999TiB", "MiB1"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q: got %v, want an error", bad, b)
		}
	}
}

func TestDuration(t *testing.T) {
	f := func(text string, want time.Duration, canonical string) {
		t.Helper()
		var got Duration
		if err := got.UnmarshalText([]byte(text)); err != nil || time.Duration(got) != want {
			t.Errorf("%q: got %v (%v), want %v", text, got, err, want)
		}
		if got.String() != canonical {
			t.Errorf("%q: got %s, want %s", text, got, canonical)
		}
	}
	f("30s", 30*time.Second, "30s")
	f("90s", 90*time.Second, "1m30s")
	f("2m", 2*time.Minute, "2m")
	f("1h", time.Hour, "1h")
	f("10m", 10*time.Minute, "10m")
	f("500ms", time.Second/2, "500ms")
	f("0s", 0, "0s")
	var d Duration
	if err := d.UnmarshalText([]byte("30")); err == nil {
		t.Error("30 without a unit was taken")
	}
}

func TestEdits(t *testing.T) {
	f := func(a, b string, want int) {
		t.Helper()
		if got := edits(a, b); got != want {
			t.Errorf("%q to %q: got %d, want %d", a, b, got, want)
		}
	}
	f("", "", 0)
	f("abc", "", 3)
	f("abc", "abc", 0)
	f("kitten", "sitting", 3)
	f("gatway", "gateway", 1)
}
