// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrQuarantined: the arena stays mapped since somebody may still use a part of it.
var ErrQuarantined = errors.New("arena: ranges in quarantine")

// Token names one quarantine of an arena, for Reclaim.
type Token uint64

// Quarantine describes a range that somebody outside of this process may still write or read.
type Quarantine struct {
	Token  Token
	Offset int64 // in the arena
	Bytes  int64 // as the arena counts them, a multiple of 64
	Reason string
	Since  time.Time
}

// quarantined is a Quarantine and the reference that it holds.
type quarantined struct {
	Quarantine
	buf *Buf
}

// Quarantine takes over the caller's reference and keeps it, so that the range is not handed out
// again before Reclaim of the token. It is for a range of which an I/O did not end in a known way:
// the other side may write into it, or read from it, at any later time. A range that was not yet
// committed can no longer be; a deferred Abort does nothing. Other holders go on as before. The same
// range may be quarantined for several such calls.
//
// Memory of a lender cannot be quarantined: it must not be given to others at all.
func (b *Buf) Quarantine(reason string) Token {
	b.mustLive("Quarantine")
	if b.lent != nil {
		panic(b.bug("Quarantine of foreign memory"))
	}
	b.note("quarantine")
	a := b.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if b.quarantines++; b.quarantines == 1 {
		b.isolated.Store(true)
		a.moveLocked(b, -1)
		a.st.Quarantined += b.size
		a.isolated++
	}
	a.lastToken++
	a.quarantine[a.lastToken] = quarantined{
		Quarantine: Quarantine{Token: a.lastToken, Offset: b.off, Bytes: b.size, Reason: reason, Since: time.Now()},
		buf:        b,
	}
	return a.lastToken
}

// Reclaim ends a quarantine: the caller knows that the other side let go of the range, which goes back
// to the arena with its last reference. It reports whether the token was in force, so that a second
// Reclaim does no harm.
func (a *Arena) Reclaim(t Token) bool {
	a.mu.Lock()
	q, ok := a.quarantine[t]
	if ok {
		delete(a.quarantine, t)
		if q.buf.quarantines--; q.buf.quarantines == 0 {
			a.st.Quarantined -= q.buf.size
			a.isolated--
			a.moveLocked(q.buf, 1)
		}
	}
	a.mu.Unlock()
	if ok {
		q.buf.Release()
	}
	return ok
}

// Quarantined lists the quarantines in force, the oldest first.
func (a *Arena) Quarantined() []Quarantine {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.quarantinedLocked()
}

func (a *Arena) quarantinedLocked() []Quarantine {
	out := make([]Quarantine, 0, len(a.quarantine))
	for _, q := range a.quarantine {
		out = append(out, q.Quarantine)
	}
	slices.SortFunc(out, func(x, y Quarantine) int { return cmp.Compare(x.Token, y.Token) })
	return out
}

// moveLocked takes the range off the counter of its state (-1), or puts it back there (1).
func (a *Arena) moveLocked(b *Buf, sign int64) {
	if b.committed.Load() {
		a.st.Committed += sign * b.size
	} else {
		a.st.Reserved += sign * b.size
	}
}

// staysMappedLocked is the error of a Close that quarantines keep from unmapping.
func (a *Arena) staysMappedLocked() error {
	oldest := a.quarantinedLocked()[0]
	return fmt.Errorf("%w: %q stays mapped: %d ranges of %d bytes, the oldest for %v: %s", ErrQuarantined,
		a.cfg.Name, a.isolated, a.st.Quarantined, time.Since(oldest.Since).Round(time.Millisecond), oldest.Reason)
}
