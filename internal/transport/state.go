// SPDX-License-Identifier: Apache-2.0

package transport

// state is where a transfer stands on the receiving side.
//
//	granted ──data──► writing ──complete──► ready ──claim──► claimed
//	   │                 │                    │
//	   └─────── fail, cancel, expire ─────────┴──► failed, cancelled, expired
//
// A writer owns the memory while it fills it, so cancel and expire of a writing transfer pass
// through a pending state that ends when the writer lets go.
type state uint8

const (
	granted state = iota
	writing
	cancelPending // cancelled; the writer still holds the memory
	expirePending // expired; the writer still holds the memory
	ready
	claimed
	failed
	cancelled
	expired
	nStates
)

var stateNames = [nStates]string{"granted", "writing", "cancel pending", "expire pending", "ready",
	"claimed", "failed", "cancelled", "expired"}

func (s state) String() string { return stateNames[s] }

// terminal says that the transfer holds no memory and never changes again.
func (s state) terminal() bool { return s >= claimed }

// event is what happens to a transfer.
type event uint8

const (
	evData     event = iota // a data frame of the right attempt, generation and size begins
	evComplete              // all bytes are there and checked; the writer lets go
	evFail                  // the bytes were wrong, or the writer stalled or died; the writer lets go
	evAbandon               // the sender says that it will not write
	evClaim                 // a Wait takes the object
	evCancel                // the owner of the ticket gives up, or the Receiver closes
	evExpire                // nobody claimed the transfer in time
	nEvents
)

var eventNames = [nEvents]string{"data", "complete", "fail", "abandon", "claim", "cancel", "expire"}

func (e event) String() string { return eventNames[e] }

// action is what a step asks of its caller.
type action uint8

const (
	ignore   action = iota // the event means nothing in this state
	fill                   // let the writer fill the memory
	commit                 // make the object final and wake the waiters
	handOver               // give the reference to the claimer
	free                   // release the memory and wake the waiters
	nudge                  // make the writer let go; the waiters are woken at once
	nActions
)

var actionNames = [nActions]string{"ignore", "fill", "commit", "hand over", "free", "nudge"}

func (a action) String() string { return actionNames[a] }

// step is one entry of the transition table.
type step struct {
	to state
	do action
}

// steps lists what is not ignored. A late data frame finds no entry and is dropped.
var steps = [nStates]map[event]step{
	granted: {
		evData:    {writing, fill},
		evFail:    {failed, free}, // a data frame of the wrong size
		evAbandon: {failed, free},
		evCancel:  {cancelled, free},
		evExpire:  {expired, free},
	},
	writing: {
		evComplete: {ready, commit},
		evFail:     {failed, free},
		evCancel:   {cancelPending, nudge},
		evExpire:   {expirePending, nudge},
	},
	cancelPending: {
		evComplete: {cancelled, free},
		evFail:     {cancelled, free},
	},
	expirePending: {
		evComplete: {expired, free},
		evFail:     {expired, free},
		evCancel:   {cancelPending, ignore},
	},
	ready: {
		evClaim:  {claimed, handOver},
		evCancel: {cancelled, free},
		evExpire: {expired, free},
	},
}

// next returns where e leads from s and what to do. It is the whole of the state machine.
func next(s state, e event) (state, action) {
	if st, ok := steps[s][e]; ok {
		return st.to, st.do
	}
	return s, ignore
}

// lateStatus is the answer to a data frame that finds its transfer in state s, past granted. Data of
// a transfer that is complete is confirmed again: its sender lost the first confirmation.
func lateStatus(s state) status {
	switch s {
	case ready, claimed:
		return statusComplete
	case cancelPending, cancelled:
		return statusCancelled
	case expirePending, expired:
		return statusExpired
	case failed:
		return statusFailed
	}
	return statusBusy
}
