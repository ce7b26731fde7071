// SPDX-License-Identifier: Apache-2.0

package transport

// deliveryState is where a Send stands.
//
//	connecting ──► asking ──► confirming ──► done
//	   ▲  └───────────┼──────────▲ │
//	   └──── cut ─────┴────────────┘     failed and cancelled from anywhere
type deliveryState uint8

const (
	connecting deliveryState = iota // there is no connection
	asking                          // the receiver was asked whether the object may come
	confirming                      // the object is on its way, or another sender's is
	done
	undelivered
	givenUp
	nDeliveryStates
)

var deliveryStateNames = [nDeliveryStates]string{"connecting", "asking", "confirming", "done", "undelivered", "given up"}

func (s deliveryState) String() string { return deliveryStateNames[s] }

// deliveryEvent is what a Send learns.
type deliveryEvent uint8

const (
	evConnected   deliveryEvent = iota // and the object may be sent unasked
	evAskFirst                         // connected; the object is large, or the connection before broke
	evGo                               // the receiver waits for the object
	evFollow                           // another sender is writing the same object there
	evConfirmed                        // the object is there
	evRefused                          // it will never be, by this grant
	evCut                              // the connection broke
	evUnreachable                      // there is none, or it broke too often
	evGiveUp                           // the caller's ctx ended
	nDeliveryEvents
)

var deliveryEventNames = [nDeliveryEvents]string{"connected", "ask first", "go", "follow", "confirmed", "refused", "cut", "unreachable", "give up"}

func (e deliveryEvent) String() string { return deliveryEventNames[e] }

// deliveryAction is what a step asks of Send.
type deliveryAction uint8

const (
	stay    deliveryAction = iota // the event means nothing in this state
	dial                          // connect
	ask                           // reserve, or refresh after a cut
	write                         // send the object, or lend it
	await                         // wait for the confirmation
	report                        // return to the caller
	abandon                       // tell the receiver, then return
	nDeliveryActions
)

var deliveryActionNames = [nDeliveryActions]string{"stay", "dial", "ask", "write", "await", "report", "abandon"}

func (a deliveryAction) String() string { return deliveryActionNames[a] }

// deliveryStep is one entry of the table.
type deliveryStep struct {
	to deliveryState
	do deliveryAction
}

var deliverySteps = [nDeliveryStates][nDeliveryEvents]deliveryStep{
	connecting: {
		evConnected:   {confirming, write},
		evAskFirst:    {asking, ask},
		evRefused:     {undelivered, report},
		evCut:         {connecting, dial},
		evUnreachable: {undelivered, report},
		evGiveUp:      {givenUp, report},
	},
	asking: {
		evGo:          {confirming, write},
		evFollow:      {confirming, await},
		evConfirmed:   {done, report},
		evRefused:     {undelivered, report},
		evCut:         {connecting, dial},
		evUnreachable: {undelivered, report},
		evGiveUp:      {givenUp, abandon},
	},
	confirming: {
		evConfirmed:   {done, report},
		evRefused:     {undelivered, report},
		evCut:         {connecting, dial},
		evUnreachable: {undelivered, report},
		evGiveUp:      {givenUp, abandon},
	},
}

// nextDelivery returns where e leads from s and what to do.
func nextDelivery(s deliveryState, e deliveryEvent) (deliveryState, deliveryAction) {
	if st := deliverySteps[s][e]; st.do != stay {
		return st.to, st.do
	}
	return s, stay
}
