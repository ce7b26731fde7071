// SPDX-License-Identifier: Apache-2.0

//go:build race

package arena

import (
	"os"
	"unsafe"
)

// region is Go memory, which the race detector watches.
type region struct {
	mem  []byte
	file *os.File // nil
}

func newRegion(_ string, n int64) (*region, error) {
	mem := make([]byte, n+align)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(mem))) & (align - 1)
	return &region{mem: mem[skip : int64(skip)+n]}, nil
}

func (r *region) close() error { r.mem = nil; return nil }
