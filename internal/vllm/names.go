// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"github.com/zeebo/xxh3"

	"afterimage/internal/openai"
	"afterimage/internal/sums"
)

// names gives texts their content names, the SHA-256 in hex. That costs more than all else that is done to a picture
// on its way through. The digest of a text that begins as no other did is made while the text comes in; of one that
// may have come before it is remembered, and a fingerprint tells whether it is the same text.
type names struct {
	key  *nhKey
	sums *sums.Maker

	mu         sync.Mutex // guards what follows
	young, old generations
}

// generations are what is known of texts. They are forgotten in two halves: what is asked for moves into the younger.
type generations struct {
	begun map[uint64]struct{} // XXH3 of the first bytes
	texts map[uint64]*named   // by quickHash, which says what to compare with and no more
}

func newGenerations() generations {
	return generations{begun: map[uint64]struct{}{}, texts: map[uint64]*named{}}
}

// named is a text that was named. It is never changed.
type named struct {
	sum     [sha256.Size]byte
	print   fingerprint
	printed bool // from the second time on
}

const (
	// maxNamed is how many texts are remembered, and how many beginnings; a text and its own take about 150 bytes.
	maxNamed = 1 << 16
	// beginning is how much of a text tells whether it may have come before, and the length of the shortest text that
	// is remembered.
	beginning = 8 << 10
)

func newNames() *names { return &names{key: newNHKey(), sums: sums.New(), young: newGenerations()} }

// taps makes the taps of one request's URLs.
type taps struct {
	names *names
	open  []*digesting
}

func (n *names) taps() *taps { return &taps{names: n} }

// tap makes the tap of a URL.
func (t *taps) tap() openai.Tap {
	d := &digesting{names: t.names}
	t.open = append(t.open, d)
	return d
}

// drop ends what the taps do with the memory that the request lies in.
func (t *taps) drop() {
	for _, d := range t.open {
		d.sum.Drop()
	}
}

// digesting is the tap of a text that is to be named.
type digesting struct {
	names *names
	text  []byte    // what has come, where it lies
	sum   *sums.Sum // nil while, and if, the text may have come before, or does not lie as it is
	apart bool      // it does not
	whole bool
}

// Piece implements openai.Tap.
func (d *digesting) Piece(p []byte, copied bool) {
	n := len(d.text)
	switch {
	case copied || d.apart || n > 0 && (cap(d.text) == n || &d.text[:n+1][n] != &p[0]):
		d.sum.Drop()
		d.sum, d.apart = nil, true
		return
	case n == 0:
		d.text = p
	default:
		d.text = d.text[:n+len(p)]
	}
	if n < beginning && len(d.text) >= beginning && !d.names.begun(d.text[:beginning]) {
		d.sum = d.names.sums.Begin()
	}
	if d.sum != nil {
		d.sum.Grow(d.text)
	}
}

// End implements openai.Tap.
func (d *digesting) End(whole bool) {
	if d.whole = whole; !whole {
		d.sum.Drop()
	}
}

// Took implements openai.Tap.
func (d *digesting) Took() bool { return false }

// of returns the name of a text that tap has seen; tap may be nil.
func (n *names) of(text []byte, tap *digesting) string {
	if len(text) < beginning {
		return nameOf(text)
	}
	now := &named{}
	quick := quickHash(text)
	switch known := n.get(quick); {
	case known != nil && known.printed && n.key.of(text) == known.print:
		now = known
	case tap != nil && tap.whole && tap.sum != nil:
		now.sum = tap.sum.Sum()
	default:
		if now.sum = n.sums.Of(text); known != nil && known.sum == now.sum {
			now.print, now.printed = n.key.of(text), true
		}
	}
	n.put(xxh3.Hash(text[:beginning]), quick, now)
	return hex.EncodeToString(now.sum[:])
}

// quickHash hashes the length of a text and some of what stands in it. Texts that differ elsewhere are told apart by
// their fingerprints, and only take longer to be named.
func quickHash(text []byte) uint64 {
	const places, bytes = 16, 512
	h := uint64(len(text))
	for i := range uint64(places) {
		at := i * uint64(len(text)-bytes) / (places - 1) // the last one is the end
		h = xxh3.HashSeed(text[at:at+bytes], h)
	}
	return h
}

// begun says whether a text that begins like this was named.
func (n *names) begun(begin []byte) bool {
	key := xxh3.Hash(begin)
	n.mu.Lock()
	defer n.mu.Unlock()
	_, young := n.young.begun[key]
	_, old := n.old.begun[key]
	return young || old
}

func (n *names) get(quick uint64) *named {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known := n.young.texts[quick]; known != nil {
		return known
	}
	return n.old.texts[quick]
}

func (n *names) put(begin, quick uint64, now *named) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.young.begun[begin], n.young.texts[quick] = struct{}{}, now
	// Texts that share a quick hash, as somebody may contrive, can begin in any number of ways.
	if max(len(n.young.texts), len(n.young.begun)) > maxNamed/2 {
		n.young, n.old = newGenerations(), n.young
	}
}
