// SPDX-License-Identifier: Apache-2.0

package embedding

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// payloadBlock is how many bytes CheckPayload sums and scans before it goes on: they are read from memory
// once and from the nearest cache the second time.
const payloadBlock = 16 << 10

// CheckPayload checks what OpenHead left out, in one pass over the payload: its sum, and that every
// value is finite. Errors wrap ErrMalformed, ErrCorrupt or ErrNotFinite. V3 has no sum.
func (p Protocol) CheckPayload(obj []byte, d DType) error {
	if p != A1 {
		if len(obj) < HeaderBytesV3 {
			return malformed("%d bytes, a v3 head takes %d", len(obj), HeaderBytesV3)
		}
		return CheckFinite(obj[HeaderBytesV3:], d)
	}
	payload, want, err := CheckHeadA1(obj)
	if err != nil {
		return err
	}
	var h xxh3.Hasher
	var bad error
	for rest := payload; len(rest) > 0; {
		block := rest[:min(payloadBlock, len(rest))]
		rest = rest[len(block):]
		_, _ = h.Write(block) // never fails
		if bad == nil {
			bad = CheckFinite(block, d)
		}
	}
	// A wrong sum comes first: what a damaged value looks like says nothing.
	if got := h.Sum64(); got != want {
		return fmt.Errorf("%w: sum %016x, want %016x", ErrCorrupt, got, want)
	}
	if bad != nil {
		return CheckFinite(payload, d) // which names the element by its place in the whole
	}
	return nil
}
