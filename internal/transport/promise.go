// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"cmp"
	"errors"
)

// adoptLocked ties a transfer to the connection of its sender, so that it fails when that ends.
func (s *session) adoptLocked(t *ticket) {
	t.untieLocked()
	t.sender = s
	s.reserved[t] = struct{}{}
}

// reserve takes note that a sender makes the object of a transfer.
func (s *session) reserve(h header) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	t, st, reason := r.findLocked(h)
	switch {
	case t == nil:
	case t.sender != nil && t.sender != s && t.room.author == t:
		st, reason = statusBusy, "another connection has reserved it"
	default:
		st, reason = s.takeLocked(t)
	}
	s.reply(frameGrant, h, st, reason)
}

// takeLocked answers a sender that will bring the object of t.
func (s *session) takeLocked(t *ticket) (status, string) {
	rm := t.room
	if t.state != waiting && !t.ghost {
		return lateStatus(t.state), "transfer is " + t.state.String()
	}
	s.adoptLocked(t)
	if t.state == waiting && t.waiters == 0 {
		s.r.idle.add(t)
	}
	if rm.author == nil {
		rm.author = t
	}
	if rm.author != t && rm.state == roomWriting {
		t.awaits = true
		return statusFollow, ""
	}
	return statusGo, ""
}

// refresh takes a sender that lost its connection and starts over. If the object has arrived meanwhile,
// that is the answer; if an older connection still seems to write it, that one is closed.
func (s *session) refresh(h header) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	t, st, reason := r.findLocked(h)
	if t == nil {
		s.reply(frameGrant, h, st, reason)
		return
	}
	rm := t.room
	if rm.author == t && rm.state == roomWriting && rm.writer != s {
		// The memory is the old writer's until it has seen that it lost its connection. Then the transfer
		// fails, as if the two ends of the cut had been noticed in the other order.
		rm.writer.hangUp()
		s.reply(frameGrant, h, statusBusy, "the connection before this one still holds it")
		return
	}
	if rm.author == t {
		r.stepRoomLocked(rm, evRestart, "", nil)
	}
	st, reason = s.takeLocked(t)
	s.reply(frameGrant, h, st, reason)
}

// abandon takes a sender's word that the object of a transfer will not come.
func (s *session) abandon(h header, why string) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	t, _, _ := s.r.findLocked(h)
	if t == nil || !s.r.failLocked(t, "abandoned", errors.New("its sender gave up: "+cmp.Or(why, "no reason given"))) {
		s.drop("late abandon")
	}
}

// hangUp ends the session's reading. The connection itself stays while loans need it.
func (s *session) hangUp() {
	if s.near != nil {
		_ = s.near.CloseRead()
		return
	}
	s.nc.Close()
}
