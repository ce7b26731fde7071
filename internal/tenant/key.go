// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// Prefix begins the keys that NewKey makes, so that people and scanners for secrets know one when they
// see it.
const Prefix = "sk-afi-"

// keyBytes is how much chance a key holds. A plain hash of it is as good as a slow one: nobody guesses 256 bits.
const keyBytes = 32

// MaxKeyBytes bounds a key that a client presents.
const MaxKeyBytes = 512

// NewKey returns a fresh key. It is to be shown to its owner once and kept nowhere.
func NewKey() string {
	b := make([]byte, keyBytes)
	rand.Read(b)
	return Prefix + base64.RawURLEncoding.EncodeToString(b)
}

// Hash is the SHA-256 of a key: what files hold.
type Hash [sha256.Size]byte

// HashOf returns the hash of a key.
func HashOf(key string) Hash { return sha256.Sum256([]byte(key)) }

const hashPrefix = "sha256:"

// String returns the hash as files have it: sha256: and 64 hex digits.
func (h Hash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

// ParseHash reads what String writes.
func ParseHash(text string) (h Hash, err error) {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	if b, bad := hex.DecodeString(digits); ok && bad == nil && len(b) == len(h) {
		return Hash(b), nil
	}
	if strings.HasPrefix(text, Prefix) {
		// Not repeated: it would end up in a log.
		return h, fmt.Errorf("that is a key, and files hold hashes only; 'afterimage keys new' prints both, and this key should not be used any more")
	}
	return h, fmt.Errorf("%.80q is no hash; write sha256: and 64 hex digits, as 'afterimage keys new' prints them", text)
}
