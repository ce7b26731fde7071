// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"afterimage/internal/cache"
	"afterimage/internal/control"
)

// The most that an Encoder tells of its cache at once fits into what a gateway reads.
func TestHeldFits(t *testing.T) {
	for _, h := range []control.Held{
		{Whole: true, In: slices.Repeat(control.Sums{math.MaxUint64}, cache.MaxKeys)},
		{In: make(control.Sums, cache.MaxNews/2), Out: make(control.Sums, cache.MaxNews/2)},
	} {
		h.Boot, h.Version = "0123456789abcdef", math.MaxUint64
		b, err := json.Marshal(h)
		if err != nil || len(b) > control.MaxHeldBytes {
			t.Errorf("%d bytes of %d, %v", len(b), control.MaxHeldBytes, err)
		}
	}
}
