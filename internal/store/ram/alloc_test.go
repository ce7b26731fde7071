// SPDX-License-Identifier: Apache-2.0

//go:build !race

package ram

import (
	"testing"

	"afterimage/internal/embedding"
)

// What the sketch excludes costs no memory; arenas of race builds lend nothing.
func TestKnownMissAllocatesNothing(t *testing.T) {
	l := newLending(t, 8*mib)
	c, _ := l.client(mib)
	keys := []embedding.Key{"absent 1", "absent 2", "absent 3", "absent 4"}
	ok := true
	allocs := testing.AllocsPerRun(100, func() { ok = ok && c.NoneStored(keys) })
	if !ok || allocs != 0 {
		t.Errorf("known: %v, with %v allocations; want true with none", ok, allocs)
	}
}
