// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"afterimage/internal/embedding"
)

// A sum is an object of its own, little endian:
//
//	 0  4    "AFS1"
//	 4  u32  0
//	 8  u64  bytes of the object
//	16  u64  XXH3-128 of the object, lower half
//	24  u64  upper half
//	32  u64  XXH3-64 of the object's key
//	40  u64  XXH3-64 of bytes 0..39
const (
	sumBytes = 48
	sumMagic = "AFS1"
)

var errNoSum = errors.New("relay: not a sum")

// sumKey is the key of the sum of the object under key.
func sumKey(key embedding.Key) embedding.Key { return key + "@sum" }

// writeSum makes dst, of sumBytes, the sum of an object.
func writeSum(dst []byte, key embedding.Key, object []byte) {
	le := binary.LittleEndian
	h := xxh3.Hash128(object)
	copy(dst, sumMagic)
	le.PutUint32(dst[4:], 0)
	le.PutUint64(dst[8:], uint64(len(object)))
	le.PutUint64(dst[16:], h.Lo)
	le.PutUint64(dst[24:], h.Hi)
	le.PutUint64(dst[32:], xxh3.HashString(string(key)))
	le.PutUint64(dst[40:], xxh3.Hash(dst[:40]))
}

// checkSum holds an object against a sum. Errors wrap errNoSum, if it is none of this key, or embedding.ErrCorrupt.
func checkSum(sum []byte, key embedding.Key, object []byte) error {
	le := binary.LittleEndian
	if len(sum) != sumBytes || string(sum[:4]) != sumMagic || le.Uint64(sum[40:]) != xxh3.Hash(sum[:40]) ||
		le.Uint64(sum[32:]) != xxh3.HashString(string(key)) {
		return errNoSum
	}
	h := xxh3.Hash128(object)
	if le.Uint64(sum[8:]) != uint64(len(object)) || le.Uint64(sum[16:]) != h.Lo || le.Uint64(sum[24:]) != h.Hi {
		return fmt.Errorf("%w: its sum is another than when it was first seen", embedding.ErrCorrupt)
	}
	return nil
}
