// SPDX-License-Identifier: Apache-2.0

package vllmconsumer

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"time"
)

// state is that of a reservation.
type state int

const (
	writing       state = iota
	ready               // may be used
	cancelPending       // cancelled while its writer may write
	expirePending       // too old while its writer may write
	cancelled           // a tombstone
)

// payload is what a reservation is for.
type payload struct {
	hash  string
	bytes int
	shape []int
	dtype string
}

func (p payload) equal(o payload) bool {
	return p.hash == o.hash && p.bytes == o.bytes && p.dtype == o.dtype && slices.Equal(p.shape, o.shape)
}

// reservation is what is known of a transfer.
type reservation struct {
	payload
	id      string
	state   state
	at      *span // nil for tombstones
	writer  bool
	touched time.Time
}

// rules are the reservation rules of one shard.
type rules struct {
	pool      pool
	ttl       time.Duration
	transfers map[string]*reservation
	residents map[string]*reservation // by hash
	order     []string                // of residents, the oldest first
}

func newRules(bytes int, ttl time.Duration) *rules {
	return &rules{pool: pool{mem: make([]byte, bytes)}, ttl: ttl, transfers: map[string]*reservation{}, residents: map[string]*reservation{}}
}

// check holds shape and dtype against the number of bytes.
func (p payload) check() error {
	n := itemSize[p.dtype]
	if n == 0 {
		return errors.New("Unsupported torch dtype string: '" + p.dtype + "'")
	}
	for _, d := range p.shape {
		n *= d
	}
	if n != p.bytes {
		return errors.New("shape and dtype do not match nbytes")
	}
	return nil
}

var itemSize = map[string]int{"float32": 4, "float16": 2, "bfloat16": 2}

// granted is the answer to a reserve.
type granted struct {
	r                        *reservation
	write, cached, cancelled bool
}

// reserve answers a reserve.
func (r *rules) reserve(id string, p payload) (granted, error) {
	if err := p.check(); err != nil {
		return granted{}, err
	}
	if old := r.transfers[id]; old != nil {
		return old.again(p)
	}
	now := &reservation{payload: p, id: newID(), touched: time.Now()}
	if res := r.residents[p.hash]; res != nil {
		if !slices.Equal(res.shape, p.shape) || res.dtype != p.dtype {
			return granted{}, errors.New("conflicting shape for mm_hash")
		}
		now.at, now.state = res.at, ready
		now.at.refs++
		r.transfers[id] = now
		return granted{r: now, cached: true}, nil
	}
	if w := r.writerOf(p.hash); w != nil {
		if !w.equal(p) {
			return granted{}, errors.New("conflicting shape for mm_hash")
		}
		now.at = w.at
		now.at.refs++
		r.transfers[id] = now
		return granted{r: now}, nil
	}
	if now.at = r.pool.take(p.bytes); now.at == nil {
		r.evict()
		if now.at = r.pool.take(p.bytes); now.at == nil {
			return granted{}, errors.New("EC consumer buffer pool is full")
		}
	}
	now.writer = true
	r.transfers[id] = now
	return granted{r: now, write: true}, nil
}

// again answers a reserve of a transfer that is known.
func (x *reservation) again(p payload) (granted, error) {
	switch {
	case x.state == cancelled:
		return granted{r: x, cancelled: true}, nil
	case x.state == expirePending:
		return granted{}, errors.New("transfer_id still has an active writer")
	case !x.equal(p):
		return granted{}, errors.New("conflicting reservation for transfer_id")
	}
	x.touched = time.Now()
	return granted{r: x}, nil
}

// writerOf returns the reservation whose writer is at work on a hash.
func (r *rules) writerOf(hash string) *reservation {
	for _, x := range r.transfers {
		if x.hash == hash && x.writer && x.state == writing {
			return x
		}
	}
	return nil
}

// complete answers a complete.
func (r *rules) complete(id, reservationID string) (completed, became bool) {
	x := r.transfers[id]
	switch {
	case x == nil || x.id != reservationID || x.state == cancelled:
		return false, false
	case x.state == ready:
		return true, false
	case x.state == cancelPending || x.state == expirePending:
		r.bury(x)
		return true, false
	case !x.writer:
		return true, false
	}
	for _, y := range r.transfers {
		if y.at == x.at && y.state == writing {
			y.state, y.touched = ready, time.Now()
		}
	}
	return true, true
}

// cancel answers a cancel.
func (r *rules) cancel(id, reservationID string, abandon, refresh bool) bool {
	x := r.transfers[id]
	switch {
	case x == nil:
		r.transfers[id] = &reservation{state: cancelled, touched: time.Now()}
		return true
	case reservationID != "" && x.id != reservationID:
		return false
	case x.state == cancelled:
		return true
	case x.writer && x.state != ready && !abandon:
		x.state = cancelPending
		return true
	}
	wrote := x.writer && x.state != ready
	at := x.at
	r.bury(x)
	if wrote { // nobody will write for those that followed
		for _, y := range r.transfers {
			if y.at == at && y.state == writing {
				r.bury(y)
			}
		}
		if refresh {
			delete(r.transfers, id)
		}
	}
	return true
}

// bury frees what x holds and leaves a tombstone.
func (r *rules) bury(x *reservation) {
	r.pool.release(x.at)
	x.at, x.state, x.writer = nil, cancelled, false
}

// use makes the embedding of a ready transfer resident, and ends the transfer.
func (r *rules) use(id string) {
	x := r.transfers[id]
	if r.residents[x.hash] == nil {
		x.at.refs++
		r.residents[x.hash] = &reservation{payload: x.payload, at: x.at}
		r.order = append(r.order, x.hash)
	}
	r.bury(x)
}

// evict drops the residents that no transfer holds.
func (r *rules) evict() {
	r.order = slices.DeleteFunc(r.order, func(hash string) bool {
		x := r.residents[hash]
		if x.at.refs > 1 {
			return false
		}
		r.pool.release(x.at)
		delete(r.residents, hash)
		return true
	})
}

// expire ends what is too old at now. Memory that may yet be written to is never freed.
func (r *rules) expire(now time.Time) {
	for id, x := range r.transfers {
		switch {
		case now.Sub(x.touched) < r.ttl:
		case x.state == cancelled:
			delete(r.transfers, id)
		case x.writer && x.state == writing:
			x.state = expirePending
		case x.state == ready || !x.writer:
			r.bury(x)
		}
	}
}

func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
