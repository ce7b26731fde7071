// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
)

// MaxHeldBytes bounds the body of a Held: 65,536 sums take 700 kB, and 4096 changes 44 kB.
const MaxHeldBytes = 1 << 20

// Held says which embeddings an Encoder's cache holds, or what has changed since an earlier Version. It is late by the
// time that it takes, so that nothing may depend on it.
type Held struct {
	Boot    string `json:"boot"`            // of the process that counts
	Version uint64 `json:"version"`         // changes of the cache that this leads up to
	Whole   bool   `json:"whole,omitempty"` // In is all that is known, and what was known before is void
	In      Sums   `json:"in,omitempty"`
	Out     Sums   `json:"out,omitempty"`
}

// Sums are sums of keys (embedding.Key.Sum): in JSON, base64 of 8 bytes each, little-endian.
type Sums []uint64

// MarshalText implements encoding.TextMarshaler.
func (s Sums) MarshalText() ([]byte, error) {
	raw := make([]byte, 0, 8*len(s))
	for _, sum := range s {
		raw = binary.LittleEndian.AppendUint64(raw, sum)
	}
	return base64.StdEncoding.AppendEncode(nil, raw), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Sums) UnmarshalText(text []byte) error {
	raw, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("sums of keys: %w", err)
	}
	if len(raw)%8 != 0 {
		return fmt.Errorf("sums of keys: %d bytes; they have 8 each", len(raw))
	}
	out := make(Sums, 0, len(raw)/8)
	for ; len(raw) > 0; raw = raw[8:] {
		out = append(out, binary.LittleEndian.Uint64(raw))
	}
	*s = out
	return nil
}
