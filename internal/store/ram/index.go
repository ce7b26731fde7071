// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/zeebo/xxh3"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// index says where objects lie, in memory of the Store's that every client maps read-only. It is a hash
// table of buckets of four entries; an object is in either of the two buckets of its key, or, when both are
// full or its key is long, in none: then it is found by asking. Only what an entry says is relied on, never
// that there is none.
//
// All words are 64 bits. In front there are two words per place; a place is a client's:
//
//	0 allowance: number in the upper 16 bits, bytes in the others
//	1 how many touches the Store has taken note of
//
// Each entry has 48 words:
//
//	0 state: odd while the entry may be used; grows by one with each change
//	1 second half of the key's hash
//	2 pin id of the object, below 1<<48 and never used again
//	3 offset in the Store's memory
//	4 bytes
//	5 end of its time to live, in ns since 1970, or 0
//	6 bytes of key
//	7 key, padded with zeros
type index struct {
	words[uint64]
	n     int       // entries, a power of two
	owner []*object // of each entry; the Store's side only
}

const (
	places      = 256
	placeWords  = 2
	entryWords  = 48
	entryKey    = 7 // where the key begins
	maxIndexKey = 8 * (entryWords - entryKey)
	ways        = 4
	// Bytes of a Store for each entry of its index, rounded up to a power of two: it costs 0.6 to 1.2 % of the
	// Store.
	indexShare = 64 << 10
	minEntries = 64
	maxEntries = 256 << 10

	entryBytes    = 8 * entryWords
	placesBytes   = 8 * places * placeWords
	numberShift   = 48 // of an allowance, and of a slot
	belowNumber   = 1<<numberShift - 1
	pinnedOnly    = 1 << 63 // set in the numbers of loans that are pins
	pinSlotShift  = 48      // in such a number
	noPlace       = 1<<64 - 1
	stateEntry    = 0
	hashEntry     = 1
	idEntry       = 2
	offsetEntry   = 3
	bytesEntry    = 4
	expiryEntry   = 5
	keyBytesEntry = 6
)

// indexEntries returns how many entries the index of a Store has.
func indexEntries(limit int64) int {
	n := min(max(limit/indexShare, minEntries), maxEntries)
	return 1 << bits.Len64(uint64(n-1))
}

// newIndex makes the empty index of a Store.
func newIndex(limit int64) (*index, error) {
	n := indexEntries(limit)
	w, err := newWords[uint64]("index", int64(placesBytes+n*entryBytes))
	if err != nil {
		return nil, err
	}
	return &index{words: w, n: n, owner: make([]*object, n)}, nil
}

// openIndex reads the index that a Store lent, all of m.
func openIndex(m *arena.Mapping) (*index, error) {
	n := (m.Size() - placesBytes) / entryBytes
	if n < minEntries || n > maxEntries || n&(n-1) != 0 || m.Size() != placesBytes+n*entryBytes {
		return nil, fmt.Errorf("%w: index of %d bytes", errProtocol, m.Size())
	}
	w, err := viewWords[uint64](m)
	if err != nil {
		return nil, err
	}
	return &index{words: w, n: int(n)}, nil
}

// entry returns the words of an entry.
func (x *index) entry(i int) []uint64 {
	at := places*placeWords + i*entryWords
	return x.w[at : at+entryWords : at+entryWords]
}

// allowance returns the word that bounds what the client at a place may pin.
func (x *index) allowance(place int) *uint64 { return &x.w[place*placeWords] }

// heard returns the word that says how many touches of the client at a place were taken note of.
func (x *index) heard(place int) *uint64 { return &x.w[place*placeWords+1] }

// buckets returns the first entries of the two buckets for a hash.
func (x *index) buckets(h xxh3.Uint128) [2]int {
	mask := uint64(x.n/ways - 1)
	return [2]int{int(h.Hi>>8&mask) * ways, int(h.Hi>>36&mask) * ways}
}

// add shows an object. It stays out of a full index, and a nil one.
func (x *index) add(o *object) {
	if x == nil || o.entry >= 0 || len(o.key) > maxIndexKey {
		return
	}
	h := hashOf(o.key)
	i := x.vacancy(x.buckets(h))
	if i < 0 {
		return
	}
	x.owner[i], o.entry = o, i
	e := x.entry(i)
	atomic.StoreUint64(&e[hashEntry], h.Lo)
	atomic.StoreUint64(&e[idEntry], o.id)
	atomic.StoreUint64(&e[offsetEntry], uint64(o.buf.Offset()))
	atomic.StoreUint64(&e[bytesEntry], uint64(o.buf.Len()))
	expires := uint64(0)
	if !o.expires.IsZero() {
		expires = uint64(o.expires.UnixNano())
	}
	atomic.StoreUint64(&e[expiryEntry], expires)
	atomic.StoreUint64(&e[keyBytesEntry], uint64(len(o.key)))
	for at, n := 0, entryKey; at < len(o.key); at, n = at+8, n+1 {
		atomic.StoreUint64(&e[n], keyWord(o.key, at))
	}
	atomic.AddUint64(&e[stateEntry], 1)
}

// vacancy returns a free entry of the bucket that has more of them, or -1.
func (x *index) vacancy(buckets [2]int) int {
	found, most := -1, 0
	for _, first := range buckets {
		free, at := 0, -1
		for i := first; i < first+ways; i++ {
			if x.owner[i] == nil {
				free, at = free+1, i
			}
		}
		if free > most {
			found, most = at, free
		}
	}
	return found
}

// hide takes an object from view. Who read its entry before, and has not pinned it yet, will see that.
func (x *index) hide(o *object) {
	if o.entry >= 0 {
		atomic.AddUint64(&x.entry(o.entry)[stateEntry], 1)
	}
}

// show ends hide.
func (x *index) show(o *object) { x.hide(o) }

// drop gives back the entry of an object that is hidden.
func (x *index) drop(o *object) {
	if o.entry >= 0 {
		x.owner[o.entry], o.entry = nil, -1
	}
}

// sight is what an entry says.
type sight struct {
	state          *uint64
	seen           uint64 // the state that the rest belongs to
	id, off, bytes uint64
	expires        uint64
}

// find looks for a key. What it returns was true at some moment during the call; same tells whether it
// still is.
func (x *index) find(k embedding.Key, h xxh3.Uint128) (sight, bool) {
	for _, first := range x.buckets(h) {
		for i := first; i < first+ways; i++ {
			e := x.entry(i)
			seen := atomic.LoadUint64(&e[stateEntry])
			if seen&1 == 0 || atomic.LoadUint64(&e[hashEntry]) != h.Lo || !sameKey(e, k) {
				continue
			}
			s := sight{state: &e[stateEntry], seen: seen,
				id: atomic.LoadUint64(&e[idEntry]) & belowNumber, off: atomic.LoadUint64(&e[offsetEntry]),
				bytes: atomic.LoadUint64(&e[bytesEntry]), expires: atomic.LoadUint64(&e[expiryEntry])}
			if s.same() {
				return s, true
			}
		}
	}
	return sight{}, false
}

// same reports that the entry has not changed since it was found.
func (s sight) same() bool { return atomic.LoadUint64(s.state) == s.seen }

// sameKey compares the whole key: a hash would do, almost surely.
func sameKey(e []uint64, k embedding.Key) bool {
	if atomic.LoadUint64(&e[keyBytesEntry]) != uint64(len(k)) || len(k) > maxIndexKey {
		return false
	}
	for at, n := 0, entryKey; at < len(k); at, n = at+8, n+1 {
		if atomic.LoadUint64(&e[n]) != keyWord(k, at) {
			return false
		}
	}
	return true
}

// keyWord returns 8 bytes of a key, zeros behind its end.
func keyWord(k embedding.Key, at int) uint64 {
	b := unsafe.Slice(unsafe.StringData(string(k)), len(k))[at:]
	if len(b) >= 8 {
		return binary.LittleEndian.Uint64(b)
	}
	v := uint64(0)
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	return v
}
