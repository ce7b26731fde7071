// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"fmt"

	"afterimage/internal/embedding"
)

// status is the receiver's answer to what a sender asked or sent. Values are never reused.
type status uint8

const (
	statusComplete   status = 0  // the object is there and checked (hello: welcome)
	statusRefused    status = 1  // hello: version, engine or width differ
	statusUnknown    status = 2  // no such transfer
	statusAttempt    status = 3  // another attempt of the transfer is current
	statusGeneration status = 4  // granted by another process
	statusBusy       status = 5  // another connection is writing this transfer
	statusCancelled  status = 6  // the receiver gave up
	statusExpired    status = 7  // nobody claimed it in time
	statusFailed     status = 8  // an earlier write of this transfer failed
	statusSize       status = 9  // not the size that was granted
	statusMalformed  status = 10 // the object's head is wrong
	statusForeign    status = 11 // the object is another key's
	statusContract   status = 12 // rows, columns or dtype are not those asked for
	statusCorrupt    status = 13 // the payload does not match its sum
	statusFollow     status = 14 // grant: another sender is writing the same object; complete follows
	statusGo         status = 15 // grant: the object may come
)

var statusNames = [...]string{
	statusComplete: "complete", statusRefused: "refused", statusUnknown: "unknown",
	statusAttempt: "attempt", statusGeneration: "generation", statusBusy: "busy",
	statusCancelled: "cancelled", statusExpired: "expired", statusFailed: "failed",
	statusSize: "size", statusMalformed: "malformed", statusForeign: "foreign",
	statusContract: "contract", statusCorrupt: "corrupt",
	statusFollow: "follow", statusGo: "go",
}

// String returns the name that metrics carry.
func (s status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// class returns the error class that Send reports for s; nil where it is no failure. A status that this
// version does not know is taken as a rejection.
func (s status) class() error {
	switch s {
	case statusComplete, statusFollow, statusGo:
		return nil
	case statusRefused:
		return ErrRefused
	case statusUnknown, statusAttempt, statusGeneration, statusBusy, statusCancelled, statusExpired, statusFailed:
		return ErrGone
	}
	return ErrRejected
}

// statusOf turns the verdict of Protocol.Open into a status.
func statusOf(err error) status {
	switch {
	case err == nil:
		return statusComplete
	case errors.Is(err, embedding.ErrForeign):
		return statusForeign
	case errors.Is(err, embedding.ErrContract):
		return statusContract
	case errors.Is(err, embedding.ErrCorrupt):
		return statusCorrupt
	}
	return statusMalformed
}
