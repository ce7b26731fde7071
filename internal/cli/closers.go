// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"slices"
)

// closers takes a role apart in the reverse order in which it was put together.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c *closers) close() error {
	var errs []error
	for _, f := range slices.Backward(*c) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
