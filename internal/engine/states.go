// SPDX-License-Identifier: Apache-2.0

package engine

import "errors"

// ErrBadState: a state that the engine cannot go on from.
var ErrBadState = errors.New("engine: unusable state")

// States is what a Runner offers besides whose sequences can move to another Runner of an engine of the same name
// and model. The rules of Runner hold for its methods.
type States interface {
	// StateBytes returns the most that Save writes of a sequence of so many cells. The first call may compute,
	// and must come before any other use of the Runner.
	StateBytes(cells int) (int, error)
	// Save writes what seq holds to dst and returns how many bytes that took.
	Save(seq int, dst []byte) (int, error)
	// Restore makes seq what Save wrote of a sequence of so many cells that ends at position pos; what it held
	// before is dropped. After an error, which wraps ErrBadState or ErrContextFull, it is empty.
	Restore(seq, pos, cells int, state []byte) error
}
