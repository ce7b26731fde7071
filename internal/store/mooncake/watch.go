// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// WatchConfig sets up Watch. Zero values mean the default, which each field names.
type WatchConfig struct {
	Admin  string        // host:port of the master's HTTP server (--metrics_port); required
	Every  time.Duration // between two looks; 5 s
	Logger *slog.Logger  // one line when the master stops to answer, one when it is back; slog.Default
}

// Watch streams what the whole cluster stores and loses, whoever did it, until ctx ends; then it closes the
// channel. The master of a wheel publishes no events, but it lists its keys: Watch compares one list with
// the next. So an object that comes and goes between two looks is never told of, and one on a storage node
// that died is there until the master gives the node up.
//
// The stream begins with a Resync, and has another when the master does not answer: then nothing is known
// until it does.
func Watch(ctx context.Context, cfg WatchConfig) <-chan store.Event {
	cfg.Every = cmp.Or(cfg.Every, 5*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	w := &watcher{cfg: cfg, list: NewListing(nil, cfg.Admin), out: make(chan store.Event)}
	go w.run(ctx)
	return w.out
}

type watcher struct {
	cfg   WatchConfig
	list  *Listing // without a Client: only the master is asked
	out   chan store.Event
	known []embedding.Key // in order
	seq   uint64
	away  bool
}

func (w *watcher) run(ctx context.Context) {
	defer close(w.out)
	for ok := w.tell(ctx, store.Resync, ""); ok; {
		err := w.list.fetch(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			ok = w.lost(ctx, err)
		default:
			if w.away {
				w.away = false
				w.cfg.Logger.Info("mooncake: the master lists its objects again", "addr", w.cfg.Admin)
			}
			ok = w.compare(ctx, w.list.keys)
		}
		if pause(ctx, w.cfg.Every) != nil {
			return
		}
	}
}

// tell passes one event on; it returns false when ctx ends.
func (w *watcher) tell(ctx context.Context, kind store.EventKind, k embedding.Key) bool {
	w.seq++
	select {
	case w.out <- store.Event{Kind: kind, Key: k, Seq: w.seq}:
		return true
	case <-ctx.Done():
		return false
	}
}

// lost forgets all keys.
func (w *watcher) lost(ctx context.Context, cause error) bool {
	if w.away {
		return true
	}
	w.away = true
	w.cfg.Logger.Warn("mooncake: the master does not list its objects; nothing is known of them meanwhile", "addr", w.cfg.Admin, "cause", cause)
	w.known = nil
	return w.tell(ctx, store.Resync, "")
}

// compare tells how keys, in order, differ from those before.
func (w *watcher) compare(ctx context.Context, keys []embedding.Key) bool {
	before := w.known
	w.known = keys
	for len(before)+len(keys) > 0 {
		switch {
		case len(keys) == 0 || len(before) > 0 && before[0] < keys[0]:
			if !w.tell(ctx, store.Removed, before[0]) {
				return false
			}
			before = before[1:]
		case len(before) == 0 || keys[0] < before[0]:
			if !w.tell(ctx, store.Stored, keys[0]) {
				return false
			}
			keys = keys[1:]
		default:
			before, keys = before[1:], keys[1:]
		}
	}
	return true
}

// CheckAdmin says how many objects the master at address, HOST:PORT, lists.
func CheckAdmin(ctx context.Context, address string) (n int, err error) {
	l := NewListing(nil, address)
	err = l.fetch(ctx)
	return len(l.keys), err
}
