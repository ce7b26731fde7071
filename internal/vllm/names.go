// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"sync"

	"github.com/zeebo/xxh3"

	"afterimage/internal/openai"
)

// names gives texts their content names, the SHA-256 in hex. That costs more than all else that is done to a picture
// on its way through. The digest of a text that begins as no other did is made while the text comes in; of one that
// may have come before it is remembered, and a fingerprint tells whether it is the same text.
type names struct {
	key *nhKey

	mu         sync.Mutex // guards what follows
	young, old generations
}

// generations are what is known of texts. They are forgotten in two halves: what is asked for moves into the younger.
type generations struct {
	begun map[uint64]struct{} // XXH3 of the first bytes
	texts map[uint64]*named   // by XXH3 of the whole, which says what to compare with and no more
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
	// maxNamed is how many texts are remembered; each takes about 150 bytes.
	maxNamed = 1 << 16
	// beginning is how much of a text tells whether it may have come before, and the length of the shortest text that
	// is remembered.
	beginning = 8 << 10
)

func newNames() *names { return &names{key: newNHKey(), young: newGenerations()} }

// digesting is the tap of a text that is to be named.
type digesting struct {
	names *names
	begin []byte
	sha   hash.Hash // nil while, and if, the text may have come before
	whole bool
}

// tap makes the tap of a URL.
func (n *names) tap() openai.Tap { return &digesting{names: n} }

// Piece implements openai.Tap.
func (d *digesting) Piece(p []byte, _ bool) {
	if d.sha != nil {
		d.sha.Write(p)
		return
	}
	if len(d.begin) == beginning {
		return
	}
	take := min(len(p), beginning-len(d.begin))
	if d.begin = append(d.begin, p[:take]...); len(d.begin) == beginning && !d.names.begun(d.begin) {
		d.sha = sha256.New()
		d.sha.Write(d.begin)
		d.sha.Write(p[take:])
	}
}

// End implements openai.Tap.
func (d *digesting) End(whole bool) { d.whole = whole }

// Took implements openai.Tap.
func (d *digesting) Took() bool { return false }

// of returns the name of a text that tap has seen; tap may be nil.
func (n *names) of(text []byte, tap *digesting) string {
	if len(text) < beginning {
		return nameOf(text)
	}
	now := &named{}
	quick := xxh3.Hash(text)
	switch known := n.get(quick); {
	case known != nil && known.printed && n.key.of(text) == known.print:
		now = known
	case tap != nil && tap.whole && tap.sha != nil:
		tap.sha.Sum(now.sum[:0])
	default:
		if now.sum = sha256.Sum256(text); known != nil && known.sum == now.sum {
			now.print, now.printed = n.key.of(text), true
		}
	}
	n.put(xxh3.Hash(text[:beginning]), quick, now)
	return hex.EncodeToString(now.sum[:])
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
	if len(n.young.texts) > maxNamed/2 {
		n.young, n.old = newGenerations(), n.young
	}
}
