// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"afterimage/internal/gateway"
	"afterimage/internal/openai"
	"afterimage/internal/store"
)

const (
	maxViewers = 64
	// silence is how long nothing may be sent; then a comment tells both sides that the other is there.
	silence = 15 * time.Second
	// storeEvery and storeTimeout pace the questions to the Store.
	storeEvery   = time.Second
	storeTimeout = 2 * time.Second
)

// state is what one event tells.
type state struct {
	gateway.View
	First     bool          `json:"first,omitempty"` // of a connection: it tells everything
	Version   string        `json:"version"`
	Store     *store.Totals `json:"store,omitempty"`
	StoreNote string        `json:"store_note,omitempty"` // why there are no totals
}

// serveLive streams an event for every change until the viewer leaves.
func (d *Dashboard) serveLive(w http.ResponseWriter, r *http.Request) {
	if d.viewers.Add(1) > maxViewers {
		d.viewers.Add(-1)
		openai.WriteError(w, openai.Unavailable(5*time.Second, "%d browsers and terminals follow this gateway already", maxViewers))
		return
	}
	defer d.viewers.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	s := stream{w: w, c: http.NewResponseController(w), timeout: d.cfg.WriteTimeout}
	tick := time.NewTicker(d.cfg.Every)
	defer tick.Stop()
	known := uint64(0)
	for {
		st := d.state(r.Context(), known)
		st.First = !s.begun
		if err := s.send(st); err != nil {
			return
		}
		known = st.Revision
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

func (d *Dashboard) state(ctx context.Context, known uint64) state {
	st := state{View: d.cfg.View(known), Version: d.cfg.Version}
	st.Store, st.StoreNote = d.totals.get(ctx)
	return st
}

// stream writes events that differ from the one before.
type stream struct {
	w       http.ResponseWriter
	c       *http.ResponseController
	timeout time.Duration
	begun   bool
	last    []byte
	wrote   time.Time
}

func (s *stream) send(st state) error {
	body, err := json.Marshal(st)
	if err != nil {
		return err
	}
	event := append(append([]byte("event: view\ndata: "), body...), "\n\n"...)
	switch same := bytes.Equal(body, s.last); {
	case same && time.Since(s.wrote) < silence:
		return nil
	case same:
		event = []byte(": still here\n\n")
	}
	s.begun, s.last, s.wrote = true, body, time.Now()
	if err := s.c.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	if _, err := s.w.Write(event); err != nil {
		return err
	}
	return s.c.Flush()
}

// totals remembers the Store's answer for all viewers.
type totals struct {
	ask func(context.Context) (store.Totals, error)

	mu   sync.Mutex // guards what follows, and is held while the Store is asked
	at   time.Time
	last *store.Totals
	note string
}

func (t *totals) get(ctx context.Context) (*store.Totals, string) {
	if t.ask == nil {
		return nil, "this gateway knows no Store"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.at) < storeEvery {
		return t.last, t.note
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	switch got, err := t.ask(ctx); {
	case err != nil:
		t.last, t.note = nil, "the Store does not answer"
	default:
		t.last, t.note = &got, ""
	}
	t.at = time.Now()
	return t.last, t.note
}
