// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/vllm/consumer"
)

// Brought is what became of a picture.
type Brought struct {
	Hash     string // vLLM's name of it
	Grid     Grid
	Transfer string // under which it is at the consumer; "" if it is not there
	Result   Result
}

// Result says how, or why not.
type Result string

// The results: the first three are successes.
const (
	Written  = Result(consumer.Written)
	Followed = Result(consumer.Followed)
	Resident = Result(consumer.Resident)

	Unknown  Result = "unknown"  // no Encoder has said enough of it
	Absent   Result = "absent"   // the Store does not have it
	StoreErr Result = "store"    // the Store cannot be asked, or has no memory for the answer
	Contract Result = "contract" // the object is not what the prompt has room for
	Corrupt  Result = "corrupt"  // the object is not the one that was there before
	Refused  Result = "refused"  // the consumer refuses it, or gave it up
	Failed   Result = "failed"   // the consumer cannot be reached, or a write broke
	Unfit    Result = "unfit"    // the consumer cannot be written to as it is run
)

var results = []Result{Written, Followed, Resident, Unknown, Absent, StoreErr, Contract, Corrupt, Refused, Failed, Unfit}

// resultOf returns why something failed.
func resultOf(err error) Result {
	switch {
	case errors.Is(err, errUnknown), errors.Is(err, errNoName):
		return Unknown
	case errors.Is(err, store.ErrMiss):
		return Absent
	case store.Classified(err):
		return StoreErr
	case errors.Is(err, embedding.ErrCorrupt), errors.Is(err, embedding.ErrNotFinite), errors.Is(err, embedding.ErrMalformed):
		return Corrupt
	case errors.Is(err, embedding.ErrContract), errors.Is(err, errTooLarge):
		return Contract
	case errors.Is(err, consumer.ErrUnfit), errors.Is(err, consumer.ErrLeftAlone):
		return Unfit
	case errors.As(err, new(*consumer.RefusedError)):
		return Refused
	}
	return Failed
}
