// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// upload is room that one connection reserved and has not committed. Uploads do not claim their key:
// the first commit wins, so a writer that stalls or dies holds up nobody.
type upload struct {
	key      embedding.Key
	buf      *arena.Buf
	tenant   *tenant
	ttl      time.Duration
	soft     bool
	deadline time.Time
}

// commit stores a filled upload and ends it in every case. stored is false, without an error, when
// another writer was first. An upload past its deadline is refused.
func (s *shelf) commit(u *upload) (stored bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case s.closed:
		s.abortLocked(u)
		return false, errors.New("the Store is closing")
	case now.After(u.deadline):
		s.n.rejected++
		s.abortLocked(u)
		return false, errors.New("the upload is past its deadline")
	case s.findLocked(u.key) != nil:
		s.n.duplicates++
		s.dropLocked(u)
		return false, nil
	}
	u.buf.Commit()
	n := int64(u.buf.Len())
	s.held -= n
	s.uploads--
	s.used += n
	s.syncLocked() // what was used before is colder
	s.enrolLocked(u, now)
	s.n.puts++
	s.feed.publish(store.Stored, u.key)
	if u.ttl > 0 || s.crowdedLocked() {
		s.nudge() // else it would be woken beside each PUT, for nothing
	}
	return true, nil
}

// enrolLocked makes an object of an upload, for everybody to find.
func (s *shelf) enrolLocked(u *upload, now time.Time) {
	s.nextPin++
	o := &object{key: u.key, buf: u.buf, tenant: u.tenant, soft: u.soft, due: -1, stored: now, read: now, id: s.nextPin, entry: -1}
	o.place = s.orderOf(o).PushFront(o)
	o.mine = o.tenant.lru.PushFront(o)
	if u.ttl > 0 {
		o.expires = now.Add(u.ttl)
		s.expiry.add(o)
	}
	s.objects[u.key] = o
	s.addLocked(o)
	s.sketch.add(u.key)
	s.showLocked(o)
}

// abort gives back the room of an upload that will not be committed.
func (s *shelf) abort(u *upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abortLocked(u)
}

func (s *shelf) abortLocked(u *upload) {
	s.n.aborted++
	s.dropLocked(u)
}

// dropLocked ends an upload, for whatever reason, without storing it.
func (s *shelf) dropLocked(u *upload) {
	s.held -= int64(u.buf.Len())
	s.uploads--
	s.chargeLocked(u.tenant, -int64(u.buf.Len()))
	u.buf.Abort()
}
