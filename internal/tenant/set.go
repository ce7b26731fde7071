// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
)

// Key is what the gateway knows of a key.
type Key struct {
	Tenant *Tenant
	Name   string // for people; may be ""
	Admin  bool   // may see the whole fleet
	hash   Hash
}

// Set is all keys that are in force. It never changes, and may be used from any goroutine.
type Set struct {
	// Keys are found under a hash that is keyed by chance, so that the time of a look-up tells nothing
	// about the hashes that are in the set.
	seed    [sha256.Size]byte
	keys    map[Hash]*Key
	tenants map[string]*Tenant
}

func newSet() *Set {
	s := &Set{keys: map[Hash]*Key{}, tenants: map[string]*Tenant{}}
	rand.Read(s.seed[:])
	return s
}

func (s *Set) place(h Hash) Hash {
	var b [2 * sha256.Size]byte
	copy(b[:], s.seed[:])
	copy(b[sha256.Size:], h[:])
	return sha256.Sum256(b[:])
}

// add puts a key into the set. Two of one hash are refused: which of them counts would be chance.
func (s *Set) add(k *Key) error {
	at := s.place(k.hash)
	if old := s.keys[at]; old != nil {
		return fmt.Errorf("the same key is there already, for tenant %q", old.Tenant.Name)
	}
	s.keys[at] = k
	s.tenants[k.Tenant.Name] = k.Tenant
	return nil
}

// Find returns the key that a client presents; nil if it is none. It takes the same time for every key of
// one length.
func (s *Set) Find(presented string) *Key {
	if len(presented) == 0 || len(presented) > MaxKeyBytes {
		return nil
	}
	h := HashOf(presented)
	k := s.keys[s.place(h)]
	if k == nil || subtle.ConstantTimeCompare(k.hash[:], h[:]) != 1 {
		return nil
	}
	return k
}

// Len returns the number of keys.
func (s *Set) Len() int { return len(s.keys) }

// Has says whether a key belongs to a tenant of that name.
func (s *Set) Has(name string) bool { return s.tenants[name] != nil }

// Rows describes the keys, in no order, without anything that is secret.
func (s *Set) Rows() []Key {
	var out []Key
	for _, k := range s.keys {
		own := *k
		own.hash = Hash{}
		out = append(out, own)
	}
	return out
}
