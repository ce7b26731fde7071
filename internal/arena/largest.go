// SPDX-License-Identifier: Apache-2.0

package arena

import "math/bits"

// LargestWithout returns the size in bytes of the largest range that Reserve could give if those of gone,
// which are in use, had come back.
func (a *Arena) LargestWithout(gone []*Buf) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.free.largestWithout(gone)
}

// largest returns the size of the largest free span.
func (f *freeList) largest() (most int64) {
	if f.rows == 0 {
		return 0
	}
	row := bits.Len64(f.rows) - 1
	col := bits.Len32(f.cols[row]) - 1
	for i := f.heads[row][col]; i != 0; i = f.spans[i].after {
		most = max(most, f.spans[i].size)
	}
	return most
}

// largestWithout returns what largest would if the spans of gone were free.
func (f *freeList) largestWithout(gone []*Buf) (most int64) {
	free := make([]bool, len(f.spans))
	for _, b := range gone {
		free[b.span] = true
	}
	size := int64(0)
	// Span 1 is the first: of one that is cut, or merged, the lower part keeps its index.
	for i := int32(1); i != 0; i = f.spans[i].next {
		if !f.spans[i].free && !free[i] {
			size = 0
			continue
		}
		size += f.spans[i].size
		most = max(most, size)
	}
	return most
}
