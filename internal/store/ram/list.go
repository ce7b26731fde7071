// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// listStep is the most objects looked at under one lock: a listing holds up no GET for longer than some
// microseconds.
const listStep = 256

// listing is what a session remembers between two calls for the pages of one list, so that the keys are
// collected and sorted once and not for each page.
type listing struct {
	prefix string
	after  embedding.Key   // the last key that was answered
	rest   []embedding.Key // in order, all behind after
}

// keysBehind returns the keys with a prefix that are behind after, in no order. It looks at the objects from
// the last to the first, some at a time: an object that is unlinked meanwhile leaves its place to the
// last one, which has been looked at, so that none is missed. One may come twice.
func (s *shelf) keysBehind(prefix string, after embedding.Key) []embedding.Key {
	var out []embedding.Key
	for i := -1; i != 0; {
		i = s.someKeys(&out, i, prefix, after)
		if s.listed != nil {
			s.listed()
		}
	}
	return out
}

// someKeys looks at the objects before place i, or at the last ones with -1, and returns where to go on.
func (s *shelf) someKeys(out *[]embedding.Key, i int, prefix string, after embedding.Key) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i < 0 || i > len(s.all) {
		i = len(s.all)
	}
	for range min(listStep, i) {
		i--
		if k := s.all[i].key; k > after && strings.HasPrefix(string(k), prefix) {
			*out = append(*out, k)
		}
	}
	return i
}

// addLocked gives an object its place among all.
func (s *shelf) addLocked(o *object) {
	o.at = len(s.all)
	s.all = append(s.all, o)
}

// dropFromAllLocked takes an object's place away; the last one moves there.
func (s *shelf) dropFromAllLocked(o *object) {
	last := len(s.all) - 1
	s.all[o.at] = s.all[last]
	s.all[o.at].at = o.at
	s.all[last] = nil
	s.all = s.all[:last]
}

// entry describes an object; false when there is none.
func (s *shelf) entry(k embedding.Key, now time.Time) (store.Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.syncLocked()
	o := s.findLocked(k)
	if o == nil {
		return store.Entry{}, false
	}
	e := store.Entry{Key: k, Bytes: int64(o.buf.Len()), Age: now.Sub(o.stored), LastUse: now.Sub(o.read),
		Pins: o.readers, SoftPin: o.soft, Tenant: o.tenant.name}
	if !o.expires.IsZero() {
		e.TTL = max(o.expires.Sub(now), 1)
	}
	return e, true
}

// list answers with the next entries of a list.
func (s *session) list(h head, body []byte) error {
	c := cursor{b: body}
	prefixBytes, afterBytes := int(c.u16()), int(c.u16())
	if prefixBytes > maxKeyBytes || afterBytes > maxKeyBytes {
		c.bad = true
	}
	prefix, after := string(c.bytes(prefixBytes)), embedding.Key(c.bytes(afterBytes))
	if err := c.end(); err != nil {
		return err
	}
	l := s.listing
	if l == nil || l.prefix != prefix || l.after != after {
		l = &listing{prefix: prefix, rest: s.srv.shelf.keysBehind(prefix, after)}
		slices.Sort(l.rest)
		l.rest = slices.Compact(l.rest)
	}
	b := head{op: opList, request: h.request}.append(s.out[:0])
	now, n := time.Now(), 0
	for n < h.count && len(l.rest) > 0 {
		k := l.rest[0]
		l.rest, l.after = l.rest[1:], k
		if e, ok := s.srv.shelf.entry(k, now); ok {
			b = appendEntry(b, e)
			n++
		}
	}
	if s.listing = l; len(l.rest) == 0 {
		s.listing = nil
	}
	head{op: opList, request: h.request, count: n, body: len(b) - headBytes}.append(b[:0])
	return s.write(b)
}

// totals answers with the Store's sums as JSON, so that fields can be added.
func (s *session) totals(h head) error {
	st := s.srv.Stats()
	text, err := json.Marshal(store.Totals{
		Objects: int64(st.Objects), Bytes: st.Bytes, LimitBytes: st.LimitBytes, MaxObject: s.srv.cfg.MaxObjectBytes,
		UploadBytes: st.UploadBytes, Loans: int64(st.Loans), LoanBytes: st.LoanBytes, Connections: int64(st.Connections),
		Puts: st.Puts, Gets: st.Gets, Hits: st.Hits, Misses: st.Misses, Evictions: st.Evictions,
		Expired: st.Expired, Removed: st.Removed, Rejected: st.Rejected,
	})
	if err != nil {
		return err
	}
	return s.write(append(head{op: opTotals, request: h.request, body: len(text)}.append(s.out[:0]), text...))
}

func appendEntry(b []byte, e store.Entry) []byte {
	for _, v := range []uint64{uint64(e.Bytes), uint64(max(e.Age, 0)), uint64(max(e.LastUse, 0)), uint64(e.TTL)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(e.Pins))
	b = binary.LittleEndian.AppendUint16(b, flagSoftPin*uint16(boolByte(e.SoftPin)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(e.Tenant)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(e.Key)))
	b = append(b, 0, 0, 0, 0, 0, 0)
	b = append(b, e.Tenant...)
	return append(b, e.Key...)
}

// readEntry reads what appendEntry wrote.
func (c *cursor) readEntry() store.Entry {
	e := store.Entry{Bytes: int64(c.u64()), Age: time.Duration(c.u64()), LastUse: time.Duration(c.u64()),
		TTL: time.Duration(c.u64()), Pins: int(c.u32()), SoftPin: c.u16()&flagSoftPin != 0}
	tenant, key := int(c.u16()), int(c.u16())
	c.bytes(6)
	e.Tenant = string(c.bytes(tenant))
	e.Key = c.key(key)
	return e
}
