// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
)

// arenaAlign is the alignment of arena ranges; a request takes at least the rounded sum.
const arenaAlign = 64

// Grant implements Receiver.
func (r *receiver) Grant(ctx context.Context, wants []Want) ([]Ticket, error) {
	total, err := r.checkWants(wants) // what can never be granted is refused before it waits
	if err != nil {
		return nil, err
	}
	start := time.Now()
	t, err := r.lineUp(ctx)
	switch {
	case errors.Is(err, ErrClosed):
		return nil, err
	case err != nil:
		return nil, r.noRoom(err, len(wants), total, time.Since(start))
	}
	defer t.Leave()
	return t.Grant(ctx, wants)
}

// checkWants refuses what can never be granted and returns the bytes that wants take.
func (r *receiver) checkWants(wants []Want) (int64, error) {
	pool := r.cfg.Arena.Stats().Capacity
	var total int64
	for i, w := range wants {
		switch {
		case w.Bytes <= 0:
			return 0, fmt.Errorf("transport: object %d has %d bytes, want at least 1", i, w.Bytes)
		case w.Protocol != embedding.V3 && w.Protocol != embedding.A1:
			return 0, fmt.Errorf("transport: object %d has unknown protocol %q", i, w.Protocol)
		case w.Contract.DType.Bytes() == 0:
			return 0, fmt.Errorf("transport: object %d has elements of unknown dtype %v", i, w.Contract.DType)
		case w.Contract.Rows > w.Bytes/max(1, w.Contract.Cols*w.Contract.DType.Bytes()):
			return 0, fmt.Errorf("transport: object %d: %d rows of %d %v do not fit %d bytes",
				i, w.Contract.Rows, w.Contract.Cols, w.Contract.DType, w.Bytes)
		case int64(w.Bytes) > r.cfg.MaxFrameBytes:
			return 0, fmt.Errorf("transport: object %d of %d bytes exceeds the frame limit of %d: %w",
				i, w.Bytes, r.cfg.MaxFrameBytes, arena.ErrTooLarge)
		}
		total += (int64(w.Bytes) + arenaAlign - 1) / arenaAlign * arenaAlign
		if total > pool {
			return 0, fmt.Errorf("transport: request needs %d bytes by object %d of %d, the pool has %d: %w",
				total, i+1, len(wants), pool, arena.ErrTooLarge)
		}
	}
	return total, nil
}

// wait waits for room for all of wants. It holds nothing meanwhile but the turn.
func (r *receiver) wait(ctx context.Context, wants []Want) ([]Ticket, error) {
	for {
		// Asked for before the attempt, so that what comes back during it is not missed. An attempt that fails
		// gives nothing back and so does not wake itself.
		freed := r.cfg.Arena.Freed()
		out, err := r.issue(wants)
		if !errors.Is(err, arena.ErrFull) {
			return out, err
		}
		if r.cfg.Evict != nil && r.cfg.Evict(wantedBytes(wants)) > 0 {
			continue
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// wantedBytes is what wants take in the arena.
func wantedBytes(wants []Want) (total int64) {
	for _, w := range wants {
		total += (int64(w.Bytes) + arenaAlign - 1) / arenaAlign * arenaAlign
	}
	return total
}

// noRoom says who waited for how much, and what the pool looked like.
func (r *receiver) noRoom(err error, n int, total int64, waited time.Duration) error {
	st := r.cfg.Arena.Stats()
	return fmt.Errorf("transport: no grant of %d bytes for %d objects after %v; pool has %d bytes, %d in use: %w",
		total, n, waited.Round(time.Millisecond), st.Capacity, st.Reserved+st.Committed, err)
}

// issue makes a ticket for each want, or for none, at once. Rooms that are there are joined.
func (r *receiver) issue(wants []Want) ([]Ticket, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	var few [8]*room
	var sizes [4]int
	rooms, fresh, lack := few[:0:4], few[4:4:8], sizes[:0]
	for _, w := range wants {
		rm := r.joinableLocked(fresh, w)
		if rm == nil {
			w.Fresh = false
			rm = &room{want: w}
			fresh, lack = append(fresh, rm), append(lack, w.Bytes)
		}
		rooms = append(rooms, rm)
	}
	if len(lack) > 0 {
		bufs, err := r.cfg.Arena.ReserveAll(lack)
		if err != nil {
			return nil, err
		}
		for i, rm := range fresh {
			rm.buf = bufs[i]
			r.rooms[rm.want.Key] = rm
		}
	}
	r.m.joined.Add(float64(len(wants) - len(fresh)))
	// Tickets of one request are independent from here on: each fails, expires and is claimed alone.
	out := make([]Ticket, len(wants))
	for i, rm := range rooms {
		out[i] = r.joinLocked(rm)
	}
	return out, nil
}

// joinableLocked returns the room that w shares: one that is made for its own request, or is there already;
// nil for none.
func (r *receiver) joinableLocked(fresh []*room, w Want) *room {
	if w.Fresh {
		return nil
	}
	for _, rm := range slices.Backward(fresh) {
		if rm.want == w {
			return rm
		}
	}
	if rm := r.rooms[w.Key]; rm != nil && rm.want == w {
		return rm
	}
	return nil
}

// joinLocked makes a ticket of rm, which is ready at once if the object is there.
func (r *receiver) joinLocked(rm *room) *ticket {
	t := &ticket{r: r, room: rm, attempt: 1, done: make(chan struct{})}
	_, _ = r.ids.Read(t.id[:]) // never fails, and nobody can guess the next one
	rm.members = append(rm.members, t)
	r.live[t.id] = t
	r.n.inFlight.Inc()
	r.idle.add(t)
	if rm.state == roomReady {
		r.stepTicketLocked(t, evArrive, "", nil)
	}
	return t
}
