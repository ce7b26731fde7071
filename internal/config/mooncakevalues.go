// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// mooncakeReader takes keys out of a file; what is left nobody knows.
type mooncakeReader struct {
	file map[string]any
	errs []error
}

func (r *mooncakeReader) take(key string) (v any, ok bool) {
	v, ok = r.file[key]
	delete(r.file, key)
	return v, ok
}

func (r *mooncakeReader) refuse(key string, v any, want string) {
	text, _ := json.Marshal(v) // it came out of JSON
	r.errs = append(r.errs, fmt.Errorf("%s is %s, want %s", key, text, want))
}

func (r *mooncakeReader) text(key, def string) string {
	v, ok := r.take(key)
	if !ok {
		return def
	}
	s, ok := v.(string)
	if !ok {
		r.refuse(key, v, "a string")
	}
	return s
}

// tenant may be null; blank is none.
func (r *mooncakeReader) tenant() string {
	const key, none = "tenant_id", "default"
	switch v, _ := r.take(key); t := v.(type) {
	case nil:
		return none
	case string:
		if t = strings.TrimSpace(t); t != "" {
			return t
		}
		return none
	default:
		r.refuse(key, v, "a string or null")
		return none
	}
}

func (r *mooncakeReader) boolean(key string) bool {
	v, ok := r.take(key)
	if !ok {
		return false
	}
	b, ok := v.(bool)
	if !ok {
		r.refuse(key, v, "a boolean")
	}
	return b
}

func (r *mooncakeReader) size(key string, def int64) int64 {
	v, ok := r.take(key)
	if !ok {
		return def
	}
	const want = `a whole number of bytes, or text with a unit such as "4gb"`
	var n int64
	switch t := v.(type) {
	case json.Number:
		n, ok = wholeNumber(t.String())
	case string:
		n, ok = mooncakeSize(t)
	default:
		ok = false
	}
	if !ok {
		r.refuse(key, v, want)
	}
	return n
}

// wholeNumber reads 5, 5.0 and 5e3, and refuses 5.5.
func wholeNumber(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
		return 0, false
	}
	return int64(f), true
}

// mooncakeUnits are binary; the longer ones come first, since all end in b.
var mooncakeUnits = []struct {
	name string
	size float64
}{{"gb", 1 << 30}, {"mb", 1 << 20}, {"kb", 1 << 10}, {"b", 1}}

// mooncakeSize reads 4294967296, 4gb, 1.5 GB. A fraction of a byte is dropped.
func mooncakeSize(text string) (int64, bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	for _, u := range mooncakeUnits {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if f *= u.size; err != nil || math.IsNaN(f) || math.Abs(f) >= 1<<63 {
			return 0, false
		}
		return int64(f), true
	}
	return wholeNumber(text)
}
