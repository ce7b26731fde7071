// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/proxy"
)

// worker is what the gateway knows of one worker.
type worker struct {
	URL   string               `json:"url"`
	Seen  control.Announcement `json:"announcement"`
	Known bool                 `json:"known"` // it has answered at least once
	Up    bool                 `json:"up"`
	Why   string               `json:"why,omitempty"` // why it is not up
	// Mismatch says that it cannot work with the rest of the fleet, whether it is up or not.
	Mismatch bool `json:"mismatch,omitempty"`

	held *held // what an Encoder holds; it is of the worker, not of a snapshot
}

// notProbed is why a worker that was not looked at yet is not up.
const notProbed = "not probed yet"

// snapshot is the fleet at one moment. It is never changed after it is made.
type snapshot struct {
	Encoders []worker `json:"encoders"`
	Prefills []worker `json:"prefills"`
	Decodes  []worker `json:"decodes,omitempty"`
}

// fleet probes the workers and holds the latest snapshot.
type fleet struct {
	every, timeout time.Duration
	client         *http.Client
	silence        *silence
	log            *slog.Logger
	wg             sync.WaitGroup
	poke           []chan struct{} // one per worker: probe at once

	mu    sync.Mutex // guards what follows
	state snapshot
}

func newFleet(cfg Config, client *http.Client) *fleet {
	f := &fleet{every: cfg.ProbeEvery, timeout: cfg.ProbeTimeout, client: client, silence: newSilence(cfg.SilenceLimit), log: cfg.Logger}
	for _, u := range cfg.Encoders {
		f.state.Encoders = append(f.state.Encoders, worker{URL: u, Why: notProbed, held: &held{}})
	}
	for _, u := range cfg.Prefills {
		f.state.Prefills = append(f.state.Prefills, worker{URL: u, Why: notProbed})
	}
	for _, u := range cfg.Decodes {
		f.state.Decodes = append(f.state.Decodes, worker{URL: u, Why: notProbed})
	}
	for range f.state.size() {
		f.poke = append(f.poke, make(chan struct{}, 1))
	}
	return f
}

func (f *fleet) start(ctx context.Context) {
	for i := range f.poke {
		f.wg.Go(func() {
			tick := time.NewTicker(f.every)
			defer tick.Stop()
			for {
				f.probe(ctx, i)
				select {
				case <-tick.C:
				case <-f.poke[i]:
				case <-ctx.Done():
					return
				}
			}
		})
	}
}

// size is how many workers there are.
func (s *snapshot) size() int { return len(s.Encoders) + len(s.Prefills) + len(s.Decodes) }

// stalled says whether the Encoder at url has a call into its engine that does not return.
func (s *snapshot) stalled(url string) bool {
	i := slices.IndexFunc(s.Encoders, func(w worker) bool { return w.URL == url })
	return i >= 0 && s.Encoders[i].Seen.Stalled()
}

// slot returns the place of worker i in s, Encoders first, then P/Ds, then decode workers, and its role.
func (s *snapshot) slot(i int) (w *worker, role string) {
	if i < len(s.Encoders) {
		return &s.Encoders[i], "encoder"
	}
	if i -= len(s.Encoders); i < len(s.Prefills) {
		return &s.Prefills[i], "prefill"
	}
	return &s.Decodes[i-len(s.Prefills)], "decode"
}

// probe asks worker i who it is and files the answer.
func (f *fleet) probe(ctx context.Context, i int) {
	f.mu.Lock()
	at, role := f.state.slot(i)
	was := *at
	f.mu.Unlock()
	seen, err := f.ask(ctx, was.URL)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		f.silence.unheard(was.URL)
	} else {
		f.silence.alive(was.URL)
	}
	is := worker{URL: was.URL, Seen: was.Seen, Known: was.Known, held: was.held}
	switch {
	case err != nil:
		is.Why = err.Error()
	case seen.Role != role:
		is.Why = fmt.Sprintf("it is a %s, configured as %s", seen.Role, role)
	case role == "encoder" && (seen.Namespace == nil || seen.Processing == nil):
		is.Why = "it announces no namespace or no processing rules"
	case role == "encoder" && naming(seen) != nil:
		is.Why = naming(seen).Error()
	case !seen.Ready:
		is.Seen, is.Known, is.Why = seen, true, "not ready: "+seen.Reason
	default:
		is.Seen, is.Known, is.Up = seen, true, true
		f.follow(ctx, is) // before it is in service, so that its first image is chosen well
	}
	is = f.set(i, is)
	if is.Up != was.Up || is.Why != was.Why {
		level := slog.LevelInfo
		if is.Up && was.Why == notProbed {
			level = slog.LevelDebug // all is well at the first look
		}
		f.log.Log(ctx, level, "worker", is.about(role)...)
	}
}

// naming says why pictures cannot be named as an Encoder announces it, or nil.
func naming(a control.Announcement) error {
	switch v3 := a.Namespace.Protocol == embedding.V3; {
	case v3 != (a.VLLM != nil):
		return fmt.Errorf("it announces namespace %s, and vLLM's naming of pictures: %v", a.Namespace, a.VLLM != nil)
	case v3:
		return a.VLLM.Validate()
	}
	return nil
}

// about is w for the log: what is not known, and the reason of a worker that is up, are left out.
func (w worker) about(role string) []any {
	about := []any{"kind", role, "url", w.URL, "up", w.Up}
	for _, a := range [][2]string{{"name", w.Seen.Name}, {"why", w.Why}} {
		if a[1] != "" {
			about = append(about, a[0], a[1])
		}
	}
	return about
}

// set files w under i in a fresh snapshot and returns how the fleet takes it.
func (f *fleet) set(i int, w worker) worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := snapshot{
		Encoders: append([]worker(nil), f.state.Encoders...),
		Prefills: append([]worker(nil), f.state.Prefills...),
		Decodes:  append([]worker(nil), f.state.Decodes...),
	}
	at, _ := next.slot(i)
	*at = w
	next.pair()
	f.state = next
	return *at
}

func (f *fleet) ask(ctx context.Context, url string) (control.Announcement, error) {
	var a control.Announcement
	return a, f.get(ctx, url, control.PathWorker, 1<<20, &a)
}

// get reads what a worker says at path, query included, of most bytes at most.
func (f *fleet) get(ctx context.Context, url, path string, most int64, into any) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
	if err != nil {
		return err
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return proxy.Plain(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("%s answered %s: its fleet.token is not that of this gateway", path, resp.Status)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", path, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, most)).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (f *fleet) snapshot() *snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state
	return &s
}

// suspect marks a worker whose call broke as down, until the probe that it sends off has answered.
func (f *fleet) suspect(url, why string) {
	f.mu.Lock()
	for i := range f.state.size() {
		if w, _ := f.state.slot(i); w.URL == url && w.Up {
			is := *w
			is.Up, is.Why = false, why
			f.mu.Unlock()
			f.set(i, is)
			select {
			case f.poke[i] <- struct{}{}:
			default:
			}
			return
		}
	}
	f.mu.Unlock()
}
