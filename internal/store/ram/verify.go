// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"fmt"

	"github.com/zeebo/xxh3"

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
		return fmt.Errorf("%w: sum %016x, want %016x", embedding.ErrCorrupt, got, sum)
	}
	return nil
}
