// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"fmt"
	"testing"

	"afterimage/internal/embedding"
)

// Each key has one number, few keys or many.
func TestDistinct(t *testing.T) {
	for _, keys := range []int{1, scanned, scanned + 1, 4 * scanned} {
		var d distinct
		for i := range 3 * keys {
			n, first := d.number(embedding.Key(fmt.Sprint(i % keys)))
			if n != i%keys || first != (i < keys) {
				t.Errorf("%d keys, item %d: number %d, for the first time %v", keys, i, n, first)
			}
		}
	}
}
