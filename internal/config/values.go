// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes is a size. As text it is a whole number with an optional unit: 1024, 64KiB, 512MiB, 2GiB, or
// the decimal kB, MB, GB.
type Bytes int64

// ParseInt reads a whole number. The error names the mend, as all of this package do.
func ParseInt(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no whole number; write one, e.g. 4", text)
	}
	return n, nil
}

// ParseFloat reads a number.
func ParseFloat(text string) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number; write one, e.g. 0.5", text)
	}
	return x, nil
}

// Units of Bytes.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

// units in the order in which String looks for one that divides the size.
var units = []struct {
	name string
	size Bytes
}{{"TiB", 1 << 40}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}}

// UnmarshalText reads a size.
func (b *Bytes) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.TrimSpace(s[len(digits):])
	n, err := strconv.ParseInt(strings.ReplaceAll(digits, "_", ""), 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is no size; write a whole number and a unit, e.g. 512MiB", s)
	}
	factor := Bytes(0)
	for _, u := range units {
		if strings.EqualFold(unit, u.name) || unit == "" {
			factor = u.size
		}
	}
	if factor == 0 {
		return fmt.Errorf("%q has an unknown unit; use B, KiB, MiB, GiB, TiB, kB, MB, GB or TB", s)
	}
	if n > math.MaxInt64/int64(factor) {
		return fmt.Errorf("%q is larger than any memory", s)
	}
	*b = Bytes(n) * factor
	return nil
}

// MarshalText writes the size with the largest binary unit that divides it.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

func (b Bytes) String() string {
	for _, u := range units[:4] {
		if b != 0 && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// Duration is a time.Duration that is text in files: 500ms, 30s, 2m.
type Duration time.Duration

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("%q is no time; write a number and a unit, e.g. 500ms, 30s, 2m", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes the duration as Go does, without zero parts.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
