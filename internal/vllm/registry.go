// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"afterimage/internal/openai"
	"afterimage/internal/route"
)

// Why an instance is not registered.
var (
	ErrMixed = conflict("Cannot mix prefill_decode with standalone prefill/decode")
	ErrRole  = conflict("Unregister the instance before changing its role")
)

func conflict(words string) *openai.Error {
	return &openai.Error{Status: http.StatusConflict, Type: typeConflict, Message: words}
}

// typeConflict is the type of an answer to a registration that does not fit the others.
const typeConflict = "ConflictError"

// RegistryConfig says when an instance is taken out of service and when it is forgotten.
type RegistryConfig struct {
	// FailThreshold is how many probes in a row fail before an instance is evicted.
	FailThreshold int
	// EvictedTTL is how long an evicted instance is remembered; 0 stands for ever.
	EvictedTTL time.Duration
	// Backoff is how long an instance whose calls failed is left alone at first; it doubles up to 16 times
	// that. 0 stands for 1 s.
	Backoff time.Duration
}

// Registry is the roster of a fleet. Instances that fail their probes are evicted, come back when they
// answer, and are forgotten in the end; instances whose calls fail are left alone for a while.
type Registry struct {
	cfg RegistryConfig

	mu      sync.Mutex // guards what follows
	live    []*entry   // in the order in which they came, or came back
	evicted []*entry
	cursors map[Role]int // only ever grow, so that a registration does not start a rotation afresh
	sent    *route.Index // what prompts seats were sent, by their names
}

// entry is an instance and what is known of it.
type entry struct {
	Instance
	probeFails int       // in a row
	silentFrom time.Time // the first of them
	since      time.Time // of the eviction
	replica    int       // cursor
	callFails  int       // in a row
	leaves     int       // times it was left alone since a call went well
	leftUntil  time.Time // no calls before, unless there is nobody else
	calls      map[*call]struct{}
	held       []int // requests in work that were given each replica
}

// newEntry returns an entry of which nothing is known.
func newEntry(i Instance) *entry {
	return &entry{Instance: i, calls: map[*call]struct{}{}, held: make([]int, max(i.Replicas, 1))}
}

// NewRegistry returns an empty roster.
func NewRegistry(cfg RegistryConfig) *Registry {
	if cfg.Backoff == 0 {
		cfg.Backoff = time.Second
	}
	return &Registry{cfg: cfg, cursors: map[Role]int{}, sent: route.NewIndex(seatBlocks)}
}

// find returns the entry of url.
func (r *Registry) find(url string) *entry {
	for _, list := range [][]*entry{r.live, r.evicted} {
		for _, e := range list {
			if e.URL == url {
				return e
			}
		}
	}
	return nil
}

// isLive says whether the instance of url is in service.
func (r *Registry) isLive(url string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.live, func(e *entry) bool { return e.URL == url })
}

// Register adds an instance, or takes over what is said of one that is known, without a word on its
// health. It returns true if the instance is new.
func (r *Registry) Register(i Instance) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range slices.Concat(r.live, r.evicted) {
		if whole := e.Role == PrefillDecode; e.Role != Encode && i.Role != Encode && whole != (i.Role == PrefillDecode) {
			return false, ErrMixed
		}
	}
	old := r.find(i.URL)
	switch {
	case old == nil:
		r.live = append(r.live, newEntry(i))
		return true, nil
	case old.Role != i.Role:
		return false, ErrRole
	case old.equal(i):
		old.probeFails = 0
	default:
		// A fresh entry: what is under way for the old one says nothing of it.
		own, fresh := *old, newEntry(i)
		r.forgetSent(old)
		own.Instance, own.probeFails, own.calls, own.held = i, 0, fresh.calls, fresh.held
		r.replace(old, &own)
	}
	return false, nil
}

func (r *Registry) replace(old, with *entry) {
	for _, list := range [][]*entry{r.live, r.evicted} {
		if at := slices.Index(list, old); at >= 0 {
			list[at] = with
		}
	}
}

// Unregister forgets an instance for good and says whether there was one.
func (r *Registry) Unregister(url string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.find(url)
	r.forget(e)
	return e != nil
}

// addresses returns where the instance of url takes embeddings.
func (r *Registry) addresses(url string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.find(url); e != nil {
		return e.Addresses
	}
	return nil
}

// forgetSent drops what the seats of e are thought to hold.
func (r *Registry) forgetSent(e *entry) {
	for _, s := range seats([]*entry{e}) {
		r.sent.Forget(s.name())
	}
}

// forget takes e off the roster. What it was sent is gone with the process.
func (r *Registry) forget(e *entry) {
	if e != nil {
		r.forgetSent(e)
	}
	is := func(o *entry) bool { return o == e }
	r.live, r.evicted = slices.DeleteFunc(r.live, is), slices.DeleteFunc(r.evicted, is)
}

// probed files the answer to a probe of e. One that e did not wait for, because it was unregistered or
// registered anew meanwhile, says nothing.
func (r *Registry) probed(e *entry, healthy bool, now time.Time) (evicted, back bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in, out := slices.Index(r.live, e), slices.Index(r.evicted, e)
	switch {
	case healthy && out >= 0:
		r.forget(e)
		r.live = append(r.live, e)
		e.probeFails, back = 0, true
	case healthy:
		e.probeFails = 0
	case in >= 0:
		if e.probeFails++; e.probeFails == 1 {
			e.silentFrom = now
		}
		if e.probeFails >= r.cfg.FailThreshold {
			r.forget(e)
			r.evicted = append(r.evicted, e)
			e.since, evicted = now, true
			e.cutSilent()
		}
	}
	return evicted, back
}

// expire forgets what has been evicted for too long.
func (r *Registry) expire(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.EvictedTTL > 0 {
		r.evicted = slices.DeleteFunc(r.evicted, func(e *entry) bool { return now.Sub(e.since) >= r.cfg.EvictedTTL })
	}
}

// all returns every entry, live ones first.
func (r *Registry) all() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.live, r.evicted)
}
