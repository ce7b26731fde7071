// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"sync"
	"time"
)

// Meters hold what each tenant has used up. Their zero value is ready. Methods may be called from any
// goroutine.
type Meters struct {
	mu  sync.Mutex // guards all, and the meters in it
	all map[string]*meter
}

// meter is what one tenant has used up. It is kept by name, so that it outlives a reload of the keys.
type meter struct {
	requests bucket
	images   bucket
	running  int
}

// Limit says which limit of a tenant a request met.
type Limit string

// The limits of a tenant.
const (
	LimitRate       Limit = "rate"
	LimitConcurrent Limit = "concurrency"
	LimitImages     Limit = "image_bytes"
)

// LimitError refuses a request that is over a limit of its tenant.
type LimitError struct {
	Limit Limit
	Most  float64 // of what Limit names
	// Retry is when the same request may be let in; 0 where that hangs on the tenant's other requests.
	Retry time.Duration
}

func (e *LimitError) Error() string {
	switch e.Limit {
	case LimitRate:
		return fmt.Sprintf("more than %g requests per second", e.Most)
	case LimitConcurrent:
		return fmt.Sprintf("more than %g requests at once", e.Most)
	}
	return fmt.Sprintf("more than %g bytes of images per second", e.Most)
}

// Quota is what a tenant has left of its request rate; all zero without a limit.
type Quota struct {
	Limit, Left int           // requests at once
	Full        time.Duration // until Left is Limit, if no other request comes
}

// Lease is one request that was let in.
type Lease struct {
	meters *Meters
	m      *meter
}

// Begin counts a request of t, or refuses it with a *LimitError. The quota is right in both cases. The
// caller ends the lease.
func (ms *Meters) Begin(t *Tenant, now time.Time) (*Lease, Quota, error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.of(t, now)
	l := t.Limits
	var err error
	if wait := m.requests.wait(now, 1); wait > 0 {
		err = &LimitError{Limit: LimitRate, Most: l.Rate, Retry: wait}
	} else if wait := m.images.wait(now, 0); wait > 0 {
		err = &LimitError{Limit: LimitImages, Most: float64(l.ImageBytes), Retry: wait}
	} else if l.Concurrent > 0 && m.running >= l.Concurrent {
		err = &LimitError{Limit: LimitConcurrent, Most: float64(l.Concurrent)}
	} else {
		m.requests.spend(now, 1)
		m.running++
	}
	q := m.quota(now)
	if err != nil {
		return nil, q, err
	}
	return &Lease{meters: ms, m: m}, q, nil
}

// of returns the meter of t in the shape of its limits.
func (ms *Meters) of(t *Tenant, now time.Time) *meter {
	m := ms.all[t.Name]
	if m == nil {
		if ms.all == nil {
			ms.all = map[string]*meter{}
		}
		m = &meter{}
		ms.all[t.Name] = m
	}
	l := t.Limits
	size := 0.0
	if l.Rate > 0 {
		size = float64(l.Burst)
	}
	m.requests.shape(now, l.Rate, size)
	m.images.shape(now, float64(l.ImageBytes), float64(l.ImageBytes))
	return m
}

func (m *meter) quota(now time.Time) Quota {
	if m.requests.size == 0 {
		return Quota{}
	}
	full := m.requests.full(now)
	return Quota{Limit: int(m.requests.size), Left: max(0, int(m.requests.level+dust)), Full: full}
}

// Images counts the bytes of a request's images. A tenant that has used more than it has gets no further
// request in until that is made up for.
func (l *Lease) Images(bytes int64, now time.Time) {
	if l == nil {
		return
	}
	l.meters.mu.Lock()
	defer l.meters.mu.Unlock()
	l.m.images.spend(now, float64(bytes))
}

// End counts the request as ended. It is called once.
func (l *Lease) End() {
	l.meters.mu.Lock()
	defer l.meters.mu.Unlock()
	l.m.running--
}

// Sweep forgets tenants that set does not have, once nothing of them is in work.
func (ms *Meters) Sweep(set *Set) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for name, m := range ms.all {
		if m.running == 0 && !set.Has(name) {
			delete(ms.all, name)
		}
	}
}
