// SPDX-License-Identifier: Apache-2.0

//go:build race

package arena

import "unsafe"

// newRegion takes Go memory, which the race detector watches, unless a mapping is asked for.
func newRegion(cfg Config, n int64) (*region, error) {
	if cfg.Mapped {
		return newMapped(cfg.Name, n)
	}
	mem := make([]byte, n+align)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(mem))) & (align - 1)
	return &region{mem: mem[skip : int64(skip)+n]}, nil
}
