// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"sync"
	"time"

	"afterimage/internal/arena"
)

// held is a range of the arena that someone may still be using.
type held struct {
	token arena.Token
	bytes int64
	sess  *session // under which the transfer runs
}

// quarantine knows why ranges are in the arena's quarantine: their transfers ended without a word that
// they ended. They come back when a late answer arrives, when the mapping of their session is
// withdrawn, or when the process that has it is dead; never by time alone.
type quarantine struct {
	arena *arena.Arena
	away  *outage
	quiet time.Duration // without a failure, after which the next one is worth a word

	mu     sync.Mutex // guards the fields below; taken before that of away and the arena's
	held   map[*held]struct{}
	bytes  int64
	last   time.Time // when the latest range came in
	total  uint64
	failed time.Time // when a server last said that a transfer failed
	doubt  time.Time // since when ranges are held; zero while none is
	told   bool      // of failures, or of ranges that stay
}

// What is told of transfers that fail while the Store is there, as they do when a storage node dies: once, and once
// when it is over.
const (
	msgDoubt = "mooncake: a transfer failed or was left; its memory is in quarantine and its key not trusted. Further ones are counted only"
	msgBack  = "mooncake: quarantined memory is back"
)

// patience is how long a range may be held before that is worth a word: answers that are merely late come by
// themselves, and a mooncake_client that stands still is noticed by its heartbeat.
const patience = 5 * time.Second

// failure tells of a transfer that the server says has failed.
func (q *quarantine) failure(reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failed = time.Now()
	if !q.told && !q.away.follows() {
		q.told = true
		q.away.log.Warn(msgDoubt, "cause", reason)
	}
}

// look tells of ranges that stay, and of the end of failures. The heart calls it about once a second.
func (q *quarantine) look() {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.told && len(q.held) == 0 && time.Since(q.failed) > q.quiet:
		q.told = false
		q.away.log.Info(msgBack)
	case !q.told && len(q.held) > 0 && time.Since(q.doubt) > patience && !q.away.follows():
		q.told = true
		q.away.log.Warn(msgDoubt, "cause", "no answer", "bytes", q.bytes)
	}
}

// hold puts b into quarantine, with a reference of its own. It returns nil, and holds nothing, when
// the mapping of s is known to be gone.
func (q *quarantine) hold(b *arena.Buf, s *session, reason string) *held {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.settled {
		return nil
	}
	h := &held{token: b.Retain().Quarantine("mooncake: " + reason), bytes: int64(b.Len()), sess: s}
	if q.held == nil {
		q.held = map[*held]struct{}{}
	}
	q.last = time.Now()
	if len(q.held) == 0 {
		q.doubt = q.last
	}
	q.held[h] = struct{}{}
	q.bytes += h.bytes
	q.total++
	return h
}

// free gives h, which may be nil, back. It does nothing when that happened already.
func (q *quarantine) free(h *held) {
	if h == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.held[h]; ok {
		q.freeLocked(h)
	}
}

func (q *quarantine) freeLocked(h *held) {
	delete(q.held, h)
	q.bytes -= h.bytes
	q.arena.Reclaim(h.token)
}

// settle gives back all that s holds: nobody can use it through s any more, now or later. It returns
// the bytes.
func (q *quarantine) settle(s *session) (bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.settled = true
	for h := range q.held {
		if h.sess == s {
			bytes += h.bytes
			q.freeLocked(h)
		}
	}
	return bytes
}

// holds reports whether ranges of s are held.
func (q *quarantine) holds(s *session) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for h := range q.held {
		if h.sess == s {
			return true
		}
	}
	return false
}

// size returns the bytes and the ranges held, and when the latest came in.
func (q *quarantine) size() (bytes int64, ranges int, last time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes, len(q.held), q.last
}

func (q *quarantine) everHeld() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}

// maxDistrusted bounds the keys under distrust. Losing one costs a failing call.
const maxDistrusted = 1 << 16

// distrust remembers keys whose answers mean nothing for a while: until the master gives up a dead
// storage node, it says that the objects there exist, and a PUT of them succeeds without storing.
type distrust struct {
	mu    sync.Mutex // guards the fields below
	until map[string]time.Time
}

// add distrusts key for d.
func (t *distrust) add(key string, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.until == nil {
		t.until = map[string]time.Time{}
	}
	if len(t.until) >= maxDistrusted {
		for k, end := range t.until {
			if now.After(end) || len(t.until) >= maxDistrusted {
				delete(t.until, k)
			}
		}
	}
	t.until[key] = now.Add(d)
}

// has reports whether key is distrusted.
func (t *distrust) has(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.until) == 0 {
		return false
	}
	end, ok := t.until[key]
	if ok && time.Now().After(end) {
		delete(t.until, key)
		return false
	}
	return ok
}

// expire forgets what has passed.
func (t *distrust) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for k, end := range t.until {
		if now.After(end) {
			delete(t.until, k)
		}
	}
}

func (t *distrust) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.until)
}
