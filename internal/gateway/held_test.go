// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/route"
)

// heldEncoder is an Encoder that announces itself and says what it is told to say of its cache.
type heldEncoder struct {
	*httptest.Server
	mu    sync.Mutex // guards what follows
	boot  string
	now   uint64
	say   string   // at PathHeld; status 500 if it is empty
	asked []string // queries of PathHeld
}

func newHeldEncoder(t *testing.T) *heldEncoder {
	e := &heldEncoder{boot: "1"}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+control.PathWorker, func(w http.ResponseWriter, _ *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		a := announced("encoder", "e", "m", "x", 4).Seen
		a.Boot, a.Held, a.Processing = e.boot, e.now, &embedding.Processing{}
		json.NewEncoder(w).Encode(a)
	})
	mux.HandleFunc("GET "+control.PathHeld, func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.asked = append(e.asked, cmp.Or(r.URL.RawQuery, "all"))
		if e.say == "" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		w.Write([]byte(e.say))
	})
	e.Server = httptest.NewServer(mux)
	t.Cleanup(e.Close)
	return e
}

// TestHeldFollows: an Encoder is asked for changes when it says that there are some, and for everything when it was
// started again; whatever it answers, it is in service, and what it cannot tell is asked for again.
func TestHeldFollows(t *testing.T) {
	e := newHeldEncoder(t)
	fl := newFleet(Config{Encoders: []string{e.URL}, ProbeTimeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)}, e.Client())
	reg := prometheus.NewRegistry()
	reg.MustRegister(workersCollector{fl})
	text := func(h control.Held) string {
		b, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	f := func(name, boot string, now uint64, say, asked string, want ...uint64) {
		t.Helper()
		e.mu.Lock()
		e.boot, e.now, e.say, e.asked = boot, now, say, nil
		e.mu.Unlock()
		fl.probe(t.Context(), 0)
		w := fl.snapshot().Encoders[0]
		if got := strings.Join(e.asked, " "); got != asked || !w.Up {
			t.Errorf("%s: asked %q, want %q; up %v, %s", name, got, asked, w.Up, w.Why)
		}
		var got []uint64
		for sum := range uint64(10) {
			if w.held.has(sum) {
				got = append(got, sum)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v are held, want %v", name, got, want)
		}
		shown := fmt.Sprintf("# HELP afterimage_gateway_held_keys Embeddings in the caches of Encoders in service, as far as they tell.\n"+
			"# TYPE afterimage_gateway_held_keys gauge\nafterimage_gateway_held_keys %d\n", len(want))
		if err := testutil.GatherAndCompare(reg, strings.NewReader(shown), "afterimage_gateway_held_keys"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	f("it tells of none, as one of an older version", "1", 0, "", "")
	f("the first look", "1", 3, text(control.Held{Boot: "1", Version: 3, Whole: true, In: control.Sums{1, 2, 3}}), "all", 1, 2, 3)
	f("nothing new", "1", 3, "", "", 1, 2, 3)
	f("changes", "1", 6, text(control.Held{Boot: "1", Version: 7, In: control.Sums{4}, Out: control.Sums{1, 9}}), "since=3", 2, 3, 4)
	f("it fails", "1", 8, "", "since=7", 2, 3, 4)
	f("nonsense", "1", 8, `{"in":"AQ=="}`, "since=7", 2, 3, 4)
	f("no end", "1", 8, `{"in":"`+strings.Repeat("A", control.MaxHeldBytes), "since=7", 2, 3, 4)
	f("another process answers", "1", 8, text(control.Held{Boot: "2", Version: 8, Whole: true}), "since=7", 2, 3, 4)
	f("too much has changed", "1", 8, text(control.Held{Boot: "1", Version: 8, Whole: true, In: control.Sums{5}}), "since=7", 5)
	f("started again, and it cannot tell", "2", 1, "", "all")
	f("started again", "2", 1, text(control.Held{Boot: "2", Version: 1, Whole: true, In: control.Sums{6}}), "all", 6)
	f("started again with nothing", "3", 0, "", "")
}

// What is remembered of an Encoder is bounded, whatever it says.
func TestHeldIsBounded(t *testing.T) {
	h := &held{}
	h.since("1")
	for part := range 3 {
		now := &control.Held{Boot: "1", Version: uint64(part)}
		for i := range maxHeld {
			now.In = append(now.In, uint64(part*maxHeld+i))
		}
		h.take(now)
	}
	if n := h.size(); n != maxHeld {
		t.Errorf("%d keys are remembered of %d", n, maxHeld)
	}
}

// TestHoldersAreAsked: with affinity, an image goes to the Encoder that holds it, whatever is to be done there, while
// that one is in service and has not failed; what is to be encoded afresh, and other routings, do not look.
func TestHoldersAreAsked(t *testing.T) {
	m := &image{id: "picture", key: "picture"}
	snap := &snapshot{}
	for i := range 3 {
		snap.Encoders = append(snap.Encoders, worker{URL: fmt.Sprint(i), Up: true, Seen: control.Announcement{Name: fmt.Sprint(i)}, held: &held{}})
	}
	rank := route.Rank("picture", peers(snap.Encoders, everyone))
	owner, holder := rank[0], rank[2]
	at := &snap.Encoders[holder]
	at.held.since("")
	at.held.take(&control.Held{Whole: true, In: control.Sums{m.key.Sum()}})
	f := func(name string, how Routing, afresh bool, past *history, want int) {
		t.Helper()
		for range 3 {
			i, err := newChooser(how, nil).encoder(snap, &request{}, m, afresh, past)
			if err != nil || i != want {
				t.Errorf("%s: %d, %v, want %d of the ranks %v", name, i, err, want, rank)
			}
		}
	}
	f("held", Affinity, false, newHistory(), holder)
	f("to be encoded afresh", Affinity, true, newHistory(), owner)
	f("in turn", RoundRobin, false, newHistory(), 0)
	tried := newHistory()
	tried.workers[at.URL] = refused
	f("it has refused this request", Affinity, false, tried, owner)
	left := newHistory()
	left.left = func(url string) bool { return url == at.URL }
	f("it is left alone", Affinity, false, left, owner)
	at.Seen.Running, at.Seen.Waiting = 1, 40
	f("much to do", Affinity, false, newHistory(), holder)
	m.held = true
	f("and the Store has it too", Affinity, false, newHistory(), holder)
	m.held, at.Up = false, false
	f("down, or leaving", Affinity, false, newHistory(), owner)
	at.Up = true
	at.held.since("another process")
	f("started again", Affinity, false, newHistory(), owner)
}
