// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"slices"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// errFollowed is why a ticket is missing whose object another transfer was to bring.
var errFollowed = errors.New("the sender that it followed started over")

// room is memory for one object, and those who want it. Its fields are guarded by receiver.mu, but for
// the bytes of buf, which belong to writer alone while the room is writing or dropped.
type room struct {
	want   Want
	state  roomState
	buf    *arena.Buf     // nil once gone
	meta   embedding.Meta // with ready
	writer *session
	// author is the transfer whose sender reserved, or writes; nil while nobody has said so. The others
	// follow it: they share its write, and its failure.
	author  *ticket
	members []*ticket // waiting or ready
}

// stepRoomLocked feeds e to rm and does what the state machine asks. reason and cause are what tickets
// that lose their object by it are told.
func (r *receiver) stepRoomLocked(rm *room, e roomEvent, reason string, cause error) roomAction {
	from := rm.state
	to, do := nextRoom(from, e)
	rm.state = to
	switch do {
	case commit:
		rm.buf.Commit()
		rm.writer = nil
		for _, t := range slices.Clone(rm.members) {
			r.stepTicketLocked(t, evArrive, "", nil)
		}
		r.releaseGhostLocked(rm)
	case nudge:
		rm.writer.interrupt()
		r.unlistLocked(rm)
	case reopen:
		for _, t := range slices.Clone(rm.members) {
			if t != rm.author {
				r.stepTicketLocked(t, evMiss, "abandoned", errFollowed)
			}
		}
	case free:
		r.unlistLocked(rm)
		for _, t := range slices.Clone(rm.members) {
			r.stepTicketLocked(t, evMiss, reason, cause)
		}
		if from == roomReady {
			rm.buf.Release()
		} else {
			rm.buf.Abort()
		}
		rm.buf, rm.writer = nil, nil
		if t := rm.author; e == evEmpty && t != nil && t.ghost && t.sender != nil {
			t.sender.answer(frameCancel, flight{t.id, t.attempt}, 0, t.reasonText())
		}
		r.releaseGhostLocked(rm)
	}
	return do
}

// unlistLocked makes later Grants take another room.
func (r *receiver) unlistLocked(rm *room) {
	if r.rooms[rm.want.Key] == rm {
		delete(r.rooms, rm.want.Key)
	}
}

// leaveLocked takes a ticket that ended out of its room. A ticket whose sender others wait for stays
// known under its name, though its owner is gone: what that sender brings is theirs.
func (r *receiver) leaveLocked(t *ticket) {
	rm := t.room
	if i := slices.Index(rm.members, t); i >= 0 {
		rm.members = slices.Delete(rm.members, i, i+1)
	}
	if rm.author == t && rm.state == roomOpen && len(rm.members) > 0 {
		t.ghost = true
		return
	}
	r.forgetLocked(t)
	if len(rm.members) == 0 {
		r.stepRoomLocked(rm, evEmpty, "", nil)
	}
}

// releaseGhostLocked forgets an author that was known for its followers' sake.
func (r *receiver) releaseGhostLocked(rm *room) {
	if t := rm.author; t != nil && t.ghost {
		t.ghost = false
		r.forgetLocked(t)
	}
}

// failLocked ends a transfer that its sender will not bring, and reports whether it was still to come.
// When others follow it, they lose their object too. What is being written is its writer's to fail.
func (r *receiver) failLocked(t *ticket, reason string, cause error) bool {
	rm := t.room
	switch {
	case rm.author != t && len(rm.members) > 1:
		return r.stepTicketLocked(t, evAbandon, reason, cause)
	case rm.state == roomOpen:
		return r.stepRoomLocked(rm, evFail, reason, cause) != ignore
	}
	return false
}
