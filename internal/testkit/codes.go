// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"

	"afterimage/internal/store"
)

// The result codes of the source's native Store whose effect its tests fix.
const (
	NoHandle      = -200  // no memory
	WriteFail     = -500  // also: registration refused
	InvalidParams = -600  // the object does not fit the buffer, among others
	InvalidRepl   = -702  //
	NotReady      = -703  // a PUT is in progress
	NotFound      = -704  //
	AlreadyExists = -705  //
	LeaseExpired  = -707  //
	TransferFail  = -800  // the transfer may go on
	Internal      = -1    //
	RPCFail       = -900  //
	RPCTimeout    = -901  //
	QuotaExceeded = -1700 //
)

var getClasses = map[int]error{
	NoHandle: store.ErrRejected, InvalidParams: store.ErrRejected, InvalidRepl: store.ErrRejected,
	NotReady: store.ErrMiss, NotFound: store.ErrMiss, AlreadyExists: store.ErrRejected, LeaseExpired: store.ErrExpired,
	RPCFail: store.ErrUnavailable, RPCTimeout: store.ErrUnavailable,
}

var putClasses = map[int]error{
	NoHandle: store.ErrRejected, NotReady: store.ErrRejected, NotFound: store.ErrRejected,
	AlreadyExists: store.ErrRejected, QuotaExceeded: store.ErrRejected,
	RPCFail: store.ErrUnavailable, RPCTimeout: store.ErrUnavailable,
}

// GetError returns what a Get that ends with code fails with. Codes that the source does not list as
// safe are unconfirmed.
func GetError(code int) error { return coded(getClasses, code) }

// PutError is GetError for a Put.
func PutError(code int) error { return coded(putClasses, code) }

func coded(classes map[int]error, code int) error {
	class, ok := classes[code]
	if !ok {
		class = store.ErrUnconfirmed
	}
	return fmt.Errorf("%w: code %d", class, code)
}
