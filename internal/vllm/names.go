// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"github.com/zeebo/xxh3"
)

// names gives texts their content names, the SHA-256 in hex. That costs more than all else that is done to a picture
// on its way through; of a text that comes again it is remembered, and a fingerprint tells that it is the same one.
type names struct {
	key *nhKey

	mu         sync.Mutex        // guards what follows
	young, old map[uint64]*named // by XXH3, which says what to compare with and no more
}

// named is a text that was named. It is never changed.
type named struct {
	sum     [sha256.Size]byte
	print   fingerprint
	printed bool // from the second time on
}

const (
	// maxNamed is how many texts are remembered; each takes a hundred bytes.
	maxNamed = 1 << 16
	// minNamed is the length of the shortest text that is worth it.
	minNamed = 16 << 10
)

func newNames() *names { return &names{key: newNHKey(), young: map[uint64]*named{}} }

// of returns the name of a text.
func (n *names) of(text []byte) string {
	if len(text) < minNamed {
		return nameOf(text)
	}
	quick := xxh3.Hash(text)
	known := n.get(quick)
	if known != nil && known.printed && n.key.of(text) == known.print {
		return hex.EncodeToString(known.sum[:])
	}
	now := &named{sum: sha256.Sum256(text)}
	if known != nil && known.sum == now.sum {
		now.print, now.printed = n.key.of(text), true
	}
	n.put(quick, now)
	return hex.EncodeToString(now.sum[:])
}

func (n *names) get(quick uint64) *named {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known := n.young[quick]; known != nil {
		return known
	}
	known := n.old[quick]
	if known != nil {
		n.putLocked(quick, known)
	}
	return known
}

func (n *names) put(quick uint64, now *named) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.putLocked(quick, now)
}

// putLocked forgets in two halves: what is asked for moves into the younger one.
func (n *names) putLocked(quick uint64, now *named) {
	if n.young[quick] = now; len(n.young) > maxNamed/2 {
		n.young, n.old = map[uint64]*named{}, n.young
	}
}
