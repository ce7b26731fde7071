// SPDX-License-Identifier: Apache-2.0

package transport

import "testing"

// TestNextRoom holds the whole machine of rooms: each state and each event.
func TestNextRoom(t *testing.T) {
	type row [nRoomEvents]roomStep // by event: data, complete, fail, restart, empty
	no := func(s roomState) roomStep { return roomStep{s, ignore} }
	want := [nRoomStates]row{
		roomOpen:    {{roomWriting, fill}, no(roomOpen), {roomGone, free}, {roomOpen, reopen}, {roomGone, free}},
		roomWriting: {no(roomWriting), {roomReady, commit}, {roomGone, free}, no(roomWriting), {roomDropped, nudge}},
		roomDropped: {no(roomDropped), {roomGone, free}, {roomGone, free}, no(roomDropped), no(roomDropped)},
		roomReady:   {no(roomReady), no(roomReady), no(roomReady), no(roomReady), {roomGone, free}},
		roomGone:    {no(roomGone), no(roomGone), no(roomGone), no(roomGone), no(roomGone)},
	}
	for s := range nRoomStates {
		for e := range nRoomEvents {
			to, do := nextRoom(s, e)
			if got := (roomStep{to, do}); got != want[s][e] {
				t.Errorf("%v + %v: got %v, %v; want %v, %v", s, e, to, do, want[s][e].to, want[s][e].do)
			}
			if (do == free) != (to == roomGone && s != roomGone) {
				t.Errorf("%v + %v: %v leads to %v: memory is not given up exactly once", s, e, do, to)
			}
			if do == free && (s == roomWriting || s == roomDropped) && e != evComplete && e != evFail {
				t.Errorf("%v + %v: memory is freed under a live writer", s, e)
			}
		}
	}
}

// TestNextTicket holds the whole machine of tickets.
func TestNextTicket(t *testing.T) {
	stay := func(s ticketState) (r [nTicketEvents]ticketState) {
		for e := range r {
			r[e] = s
		}
		return r
	}
	want := [nTicketStates][nTicketEvents]ticketState{ // by event: arrive, miss, claim, cancel, expire, abandon
		waiting:   {ready, failed, waiting, cancelled, expired, failed},
		ready:     {ready, ready, claimed, cancelled, expired, ready},
		claimed:   stay(claimed),
		failed:    stay(failed),
		cancelled: stay(cancelled),
		expired:   stay(expired),
	}
	for s := range nTicketStates {
		for e := range nTicketEvents {
			if got := nextTicket(s, e); got != want[s][e] {
				t.Errorf("%v + %v: got %v, want %v", s, e, got, want[s][e])
			}
		}
	}
}

// TestNextDelivery holds the whole machine of a Send.
func TestNextDelivery(t *testing.T) {
	type row [nDeliveryEvents]deliveryStep
	no := func(s deliveryState) deliveryStep { return deliveryStep{s, stay} }
	all := func(s deliveryState) (r row) {
		for e := range r {
			r[e] = no(s)
		}
		return r
	}
	// By event: connected, ask first, go, follow, confirmed, refused, cut, unreachable, give up.
	want := [nDeliveryStates]row{
		connecting: {{confirming, write}, {asking, ask}, no(connecting), no(connecting), no(connecting),
			{undelivered, report}, {connecting, dial}, {undelivered, report}, {givenUp, report}},
		asking: {no(asking), no(asking), {confirming, write}, {confirming, await}, {done, report},
			{undelivered, report}, {connecting, dial}, {undelivered, report}, {givenUp, abandon}},
		confirming: {no(confirming), no(confirming), no(confirming), no(confirming), {done, report},
			{undelivered, report}, {connecting, dial}, {undelivered, report}, {givenUp, abandon}},
		done:        all(done),
		undelivered: all(undelivered),
		givenUp:     all(givenUp),
	}
	for s := range nDeliveryStates {
		for e := range nDeliveryEvents {
			to, do := nextDelivery(s, e)
			if got := (deliveryStep{to, do}); got != want[s][e] {
				t.Errorf("%v + %v: got %v, %v; want %v, %v", s, e, to, do, want[s][e].to, want[s][e].do)
			}
		}
	}
}

func TestLateStatus(t *testing.T) {
	want := [nTicketStates]status{
		waiting: statusBusy, ready: statusComplete, claimed: statusComplete,
		failed: statusFailed, cancelled: statusCancelled, expired: statusExpired,
	}
	for s := range nTicketStates {
		if got := lateStatus(s); got != want[s] {
			t.Errorf("%v: got %v, want %v", s, got, want[s])
		}
	}
}
