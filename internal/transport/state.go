// SPDX-License-Identifier: Apache-2.0

package transport

// Three machines say what may happen to whom; each is a table, and a pure function over it.
//
//   - A room is memory for one object at a receiver. Transfers that want the same object share it.
//   - A ticket is a receiver's interest in one transfer.
//   - A delivery is a sender's side of one transfer.
//
// What is not in a table means nothing and is ignored: it came too late, or twice.

// roomState is where a room stands.
//
//	open ──data──► writing ──complete──► ready ──the last one left──► gone
//	  │               ├── fail ─────────────────────────────────────► gone
//	  └───────────────┴── everybody left ──► (dropped ──►) gone
type roomState uint8

const (
	roomOpen    roomState = iota // nobody writes
	roomWriting                  // a writer holds the memory
	roomDropped                  // nobody wants it, but the writer has not let go yet
	roomReady                    // the object is there
	roomGone                     // it holds no memory
	nRoomStates
)

var roomStateNames = [nRoomStates]string{"open", "writing", "dropped", "ready", "gone"}

func (s roomState) String() string { return roomStateNames[s] }

// roomEvent is what happens to a room.
type roomEvent uint8

const (
	evData     roomEvent = iota // a writer wants to begin
	evComplete                  // all bytes are there and checked; the writer lets go
	evFail                      // the bytes are wrong, or the writer stalled, died or gave up, and lets go
	evRestart                   // the sender that others follow starts over
	evEmpty                     // the last interested ticket left
	nRoomEvents
)

var roomEventNames = [nRoomEvents]string{"data", "complete", "fail", "restart", "empty"}

func (e roomEvent) String() string { return roomEventNames[e] }

// roomAction is what a step asks of its caller.
type roomAction uint8

const (
	ignore roomAction = iota // the event means nothing in this state
	fill                     // let the writer fill the memory
	commit                   // make the object final and tell the tickets
	free                     // release the memory and tell the tickets that are left
	nudge                    // make the writer let go
	reopen                   // tell the tickets that followed
	nRoomActions
)

var roomActionNames = [nRoomActions]string{"ignore", "fill", "commit", "free", "nudge", "reopen"}

func (a roomAction) String() string { return roomActionNames[a] }

// roomStep is one entry of the table.
type roomStep struct {
	to roomState
	do roomAction
}

var roomSteps = [nRoomStates][nRoomEvents]roomStep{
	roomOpen: {
		evData:    {roomWriting, fill},
		evFail:    {roomGone, free}, // abandoned, or of the wrong size
		evRestart: {roomOpen, reopen},
		evEmpty:   {roomGone, free},
	},
	roomWriting: {
		evComplete: {roomReady, commit},
		evFail:     {roomGone, free},
		evEmpty:    {roomDropped, nudge},
	},
	roomDropped: {
		evComplete: {roomGone, free},
		evFail:     {roomGone, free},
	},
	roomReady: {evEmpty: {roomGone, free}},
}

// nextRoom returns where e leads from s and what to do.
func nextRoom(s roomState, e roomEvent) (roomState, roomAction) {
	if st := roomSteps[s][e]; st.do != ignore {
		return st.to, st.do
	}
	return s, ignore
}

// ticketState is where a receiver's interest in a transfer stands.
//
//	waiting ──arrive──► ready ──claim──► claimed
//	   └── fail, cancel, expire ──┴────► failed, cancelled, expired
type ticketState uint8

const (
	waiting ticketState = iota
	ready
	claimed
	failed
	cancelled
	expired
	nTicketStates
)

var ticketStateNames = [nTicketStates]string{"waiting", "ready", "claimed", "failed", "cancelled", "expired"}

func (s ticketState) String() string { return ticketStateNames[s] }

// terminal says that the ticket holds no memory and never changes again.
func (s ticketState) terminal() bool { return s >= claimed }

// ticketEvent is what happens to a ticket.
type ticketEvent uint8

const (
	evArrive  ticketEvent = iota // the room is ready
	evMiss                       // the room is gone
	evClaim                      // a Wait takes the object
	evCancel                     // the owner of the ticket gives up, or the Receiver closes
	evExpire                     // nobody claimed it in time
	evAbandon                    // its own sender gave up, while another's still comes
	nTicketEvents
)

var ticketEventNames = [nTicketEvents]string{"arrive", "miss", "claim", "cancel", "expire", "abandon"}

func (e ticketEvent) String() string { return ticketEventNames[e] }

var ticketSteps = [nTicketStates][nTicketEvents]ticketState{
	waiting: {evArrive: ready, evMiss: failed, evCancel: cancelled, evExpire: expired, evAbandon: failed},
	ready:   {evClaim: claimed, evCancel: cancelled, evExpire: expired},
}

// nextTicket returns where e leads from s; s itself when e means nothing there. No event leads back to
// waiting, so its zero value can stand for that.
func nextTicket(s ticketState, e ticketEvent) ticketState {
	if to := ticketSteps[s][e]; to != waiting {
		return to
	}
	return s
}

// lateStatus is the answer to a sender whose transfer stands at s. Data of a transfer that is there is
// confirmed again: its sender lost the first confirmation.
func lateStatus(s ticketState) status {
	switch s {
	case ready, claimed:
		return statusComplete
	case cancelled:
		return statusCancelled
	case expired:
		return statusExpired
	case failed:
		return statusFailed
	}
	return statusBusy
}
