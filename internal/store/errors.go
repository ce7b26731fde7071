// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
)

var (
	// ErrExpired is the miss of an object that was there when the read began: its lease ended before
	// the bytes were safe. A second read may succeed.
	ErrExpired = fmt.Errorf("%w: lease expired", ErrMiss)
	// ErrDistrusted marks a call that a Guard did not make, because an earlier one with the same key
	// was unconfirmed. It comes with a class.
	ErrDistrusted = errors.New("store: key is distrusted after an unconfirmed completion")
	// ErrHeld marks an unconfirmed completion that the Store itself looks after: it keeps the range until
	// the other side is known to be done with it, distrusts the key for as long as that takes, and bounds
	// what is in doubt. A Guard that drains leaves all three to it.
	ErrHeld = errors.New("store: the range is held back")
	// ErrMustExit marks every error of a Guard that was poisoned under Exit. It comes with
	// ErrUnconfirmed.
	ErrMustExit = errors.New("store: I/O completion is unconfirmed; worker must exit")
)

// Classified says whether err wraps one of the four classes.
func Classified(err error) bool {
	for _, class := range []error{ErrMiss, ErrRejected, ErrUnavailable, ErrUnconfirmed} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}
