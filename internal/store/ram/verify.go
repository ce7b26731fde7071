// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"fmt"

	"github.com/zeebo/xxh3"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// verify checks an object in the Store's own memory, once, when it is stored: readers of a loan do not
// sum it again. Only a1 objects can be checked without a contract; others pass. That an object belongs
// to its key is for readers to check, as they do with the contract. verify reads nothing but obj, so
// what a writer does to its own memory meanwhile does not matter.
func verify(obj []byte) error {
	if !embedding.IsA1(obj) {
		return nil
	}
	payload, sum, err := embedding.CheckHeadA1(obj)
	if err != nil {
		return err
	}
	if got := xxh3.Hash(payload); got != sum {
		return corrupt(got, sum)
	}
	return nil
}

// Objects up to fuseLimit are copied in steps that are summed while they are in the nearest cache, which
// saves a fifth of the time at 1 MiB. Larger copies go past the caches, and steps would cost more than
// they save. Nor is it of use to sum them on another core beside the copy, which has most of the bandwidth
// (BenchmarkTakeIn, and xxh3 and memmove of a 2 vCPU EPYC): the largest are copied by two, and then summed.
const (
	fuseLimit = 2 << 20
	fuseStep  = 256 << 10
)

// takeIn copies an object into the Store's memory and checks the copy as verify does. src may change at
// any time.
func takeIn(obj, src []byte) error {
	n := min(len(src), fuseStep)
	copy(obj[:n], src)
	if len(src) <= fuseLimit && embedding.IsA1(obj) {
		payload, sum, err := embedding.CheckHeadA1(obj)
		if at := len(obj) - len(payload); err == nil && at <= n {
			return sumWhileCopying(obj, src, at, n, sum)
		} // or the head is longer than a step
	}
	arena.Copy(obj[n:], src[n:])
	return verify(obj)
}

// sumWhileCopying copies what is behind n, and sums what is behind at.
func sumWhileCopying(obj, src []byte, at, n int, sum uint64) error {
	var h xxh3.Hasher
	_, _ = h.Write(obj[at:n]) // never fails
	for n < len(src) {
		to := min(n+fuseStep, len(src))
		copy(obj[n:to], src[n:to])
		_, _ = h.Write(obj[n:to])
		n = to
	}
	if got := h.Sum64(); got != sum {
		return corrupt(got, sum)
	}
	return nil
}

func corrupt(got, want uint64) error {
	return fmt.Errorf("%w: sum %016x, want %016x", embedding.ErrCorrupt, got, want)
}
