// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// keysFile is a file of keys, in TOML.
type keysFile struct {
	Salt    string             `toml:"salt"` // secret of the salts of tenants
	Default section            `toml:"default"`
	Tenants map[string]section `toml:"tenants"`
	Keys    []entry            `toml:"keys"`
}

// section is what a file says of a tenant. What it leaves out is that of the section default.
type section struct {
	Share      *bool    `toml:"share"`
	Weight     *int     `toml:"weight"`
	Rate       *float64 `toml:"requests_per_second"`
	Burst      *int     `toml:"burst"`
	Concurrent *int     `toml:"concurrent_requests"`
	ImageBytes *int64   `toml:"image_bytes_per_second"`
	Chooses    *bool    `toml:"choose_workers"`
}

// entry is one key.
type entry struct {
	Tenant string `toml:"tenant"`
	Hash   string `toml:"hash"`
	Name   string `toml:"name"`
	Admin  bool   `toml:"admin"`
}

// Bounds that keep a slip of the finger from looking like a fault of the program.
const (
	maxFileBytes = 16 << 20
	maxNameBytes = 64
	maxWeight    = 1000
	minSalt      = 16
)

// Parse reads a file of keys, and adds keys that are given in the clear. Errors name the part that is wrong.
func Parse(text []byte, clear []string) (*Set, error) {
	var f keysFile
	text = bytes.TrimPrefix(text, []byte("\uFEFF")) // a byte order mark, which editors of Windows write
	dec := toml.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return nil, placed(err)
	}
	if f.Salt != "" && len(f.Salt) < minSalt {
		return nil, fmt.Errorf("salt has %d bytes, which are soon guessed; give at least %d, e.g. from 'openssl rand -hex 32'", len(f.Salt), minSalt)
	}
	if len(f.Keys)+len(clear) == 0 {
		return nil, errors.New("it has no [[keys]], and would let nobody in; make one with 'afterimage keys new --tenant NAME'")
	}
	s := newSet()
	if err := f.tenants(s); err != nil {
		return nil, err
	}
	for i, e := range f.Keys {
		if err := f.key(s, e); err != nil {
			return nil, fmt.Errorf("keys[%d] (tenant %q, name %q): %w", i, e.Tenant, e.Name, err)
		}
	}
	return s, addClear(s, clear)
}

// Clear returns the set of keys that are given in the clear alone.
func Clear(keys []string) (*Set, error) {
	s := newSet()
	return s, addClear(s, keys)
}

// addClear adds keys that are given in the clear. They are the operator's own: they may see everything, and
// their tenant shares unless a file says otherwise.
func addClear(s *Set, keys []string) error {
	for i, text := range keys {
		if text == "" || len(text) > MaxKeyBytes || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("key %d of those that are given in the clear: give 1 to %d printable characters without spaces", i+1, MaxKeyBytes)
		}
		t := s.tenants[Default]
		if t == nil {
			t = &Tenant{Name: Default, Weight: 1}
		}
		if err := s.add(&Key{Tenant: t, Name: fmt.Sprintf("given in the clear, %d", i+1), Admin: true, hash: HashOf(text)}); err != nil {
			return fmt.Errorf("key %d of those that are given in the clear: %w", i+1, err)
		}
	}
	return nil
}

// tenants makes the tenants that have a section.
func (f *keysFile) tenants(s *Set) error {
	base, err := f.Default.over(Tenant{Weight: 1}, "", "")
	if err != nil {
		return fmt.Errorf("default: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Tenants)) {
		if err := f.tenant(s, name, *base); err != nil {
			return fmt.Errorf("tenants.%s: %w", name, err)
		}
	}
	return nil
}

// tenant makes one tenant.
func (f *keysFile) tenant(s *Set, name string, base Tenant) error {
	if name == "" || len(name) > maxNameBytes || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || r == 0xfffd }) {
		return fmt.Errorf("a tenant's name has 1 to %d bytes and no spaces", maxNameBytes)
	}
	own := f.Tenants[name]
	if own.Share == nil {
		own.Share = f.Default.Share
	}
	t, err := own.over(base, f.Salt, name)
	if err != nil {
		return err
	}
	s.tenants[name] = t
	return nil
}

// key adds a key, and its tenant if that has no section.
func (f *keysFile) key(s *Set, e entry) error {
	if s.tenants[e.Tenant] == nil {
		base, _ := f.Default.over(Tenant{Weight: 1}, "", "") // it was checked
		if err := f.tenant(s, e.Tenant, *base); err != nil {
			return err
		}
	}
	h, err := ParseHash(e.Hash)
	if err != nil {
		return err
	}
	return s.add(&Key{Tenant: s.tenants[e.Tenant], Name: e.Name, Admin: e.Admin, hash: h})
}

// over lays what the section says over t.
func (c section) over(t Tenant, secret, name string) (*Tenant, error) {
	t.Name = name
	if name != "" && (c.Share == nil || !*c.Share) {
		t.salt = saltOf(secret, name)
	}
	if c.Weight != nil {
		t.Weight = *c.Weight
	}
	if c.Chooses != nil {
		t.Chooses = *c.Chooses
	}
	l := &t.Limits
	if c.Rate != nil {
		l.Rate = *c.Rate
	}
	if c.Burst != nil {
		l.Burst = *c.Burst
	}
	if c.Concurrent != nil {
		l.Concurrent = *c.Concurrent
	}
	if c.ImageBytes != nil {
		l.ImageBytes = *c.ImageBytes
	}
	switch {
	case t.Weight < 1 || t.Weight > maxWeight:
		return nil, fmt.Errorf("weight = %d; give 1 to %d", t.Weight, maxWeight)
	case !(l.Rate >= 0) || math.IsInf(l.Rate, 0): // NaN is no rate either
		return nil, fmt.Errorf("requests_per_second = %v; give a number that is not negative, 0 for no limit", l.Rate)
	case l.Burst < 0 || l.Concurrent < 0 || l.ImageBytes < 0:
		return nil, errors.New("burst, concurrent_requests and image_bytes_per_second are not negative; 0 is no limit")
	case l.Rate > 0 && l.Burst == 0 && name != "":
		l.Burst = max(1, int(math.Ceil(min(l.Rate, math.MaxInt32))))
	}
	return &t, nil
}

// placed says where in the file an error is.
func placed(err error) error {
	var unknown *toml.StrictMissingError
	var wrong *toml.DecodeError
	switch {
	case errors.As(err, &unknown) && len(unknown.Errors) > 0:
		e := unknown.Errors[0]
		row, column := e.Position()
		return fmt.Errorf("line %d, column %d: unknown key %s; there are salt, [default], [tenants.NAME] and [[keys]]", row, column, strings.Join(e.Key(), "."))
	case errors.As(err, &wrong):
		row, column := wrong.Position()
		fault := strings.TrimPrefix(wrong.Error(), "toml: ")
		if strings.HasPrefix(fault, "cannot ") { // the library then names types of this program, which nobody else knows
			fault = mendOf(wrong.Key())
		}
		return fmt.Errorf("line %d, column %d: %s", row, column, fault)
	}
	return err
}

// mendOf says how the value of a key is written.
func mendOf(key []string) string {
	if len(key) == 0 {
		return "there are salt, [default], [tenants.NAME] and [[keys]]"
	}
	name := strings.Join(key, ".")
	switch last := key[len(key)-1]; last {
	case "share", "choose_workers", "admin":
		return name + ": write true or false, without quotes"
	case "weight", "burst", "concurrent_requests", "image_bytes_per_second":
		return name + ": write a whole number, without quotes"
	case "requests_per_second":
		return name + ": write a number, without quotes"
	case "salt", "tenant", "name", "hash":
		return name + ": write text, in quotes"
	case "keys":
		return name + " is a list of tables: write [[keys]] on a line of its own before each, and its keys below"
	}
	return name + " is a table: there are salt, [default], [tenants.NAME] and [[keys]]"
}
