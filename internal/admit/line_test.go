// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ended says whether a request has left the line, given a place or dropped.
func (w *waiter) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// order joins names to a line whose places are taken, gives one place back at a time, and returns who gets it.
func order(weights map[string]int, names string) string {
	l := newLine(1, share{requests: 100})
	l.take()
	var all []*waiter
	for _, name := range strings.Fields(names) {
		w, _ := l.join(name, weights[name], 0, time.Time{})
		all = append(all, w)
	}
	var out []string
	for range all {
		l.leave()
		i := slices.IndexFunc(all, (*waiter).ended)
		out = append(out, all[i].party.name)
		all = slices.Delete(all, i, i+1)
	}
	return strings.Join(out, " ")
}

// Tenants take turns, however many requests each has; a weight is requests per turn.
func TestTurns(t *testing.T) {
	f := func(weights map[string]int, names, want string) {
		t.Helper()
		if got := order(weights, names); got != want {
			t.Errorf("%s: got %s, want %s", names, got, want)
		}
	}
	f(nil, "a a a", "a a a")
	f(nil, "a a a a b b c", "a b c a b a a")
	f(map[string]int{"a": 2}, "a a a a b b b", "a a b a a b b")
	f(map[string]int{"b": 3}, "a a a b b b b", "a b b b a b a")
}

// Room is shared: a tenant with little in line takes the place of the latest of one with much.
func TestRoomIsShared(t *testing.T) {
	l := newLine(1, share{requests: 4})
	l.take()
	var all []*waiter
	join := func(name string, weight int) bool {
		w, err := l.join(name, weight, 0, time.Time{})
		if err == nil {
			all = append(all, w)
		}
		return err == nil
	}
	for range 4 {
		join("a", 1)
	}
	if join("a", 1) {
		t.Error("a fifth of a was taken")
	}
	if !join("b", 1) || all[3].dropped != errFull || all[2].ended() {
		t.Error("b did not get the place of the latest of a")
	}
	if !join("b", 1) || all[2].dropped != errFull {
		t.Error("the second of b did not get a place")
	}
	if join("b", 1) {
		t.Error("a third of b was taken, of four places for two")
	}
	if !join("c", 1) || l.waiting.requests != 4 {
		t.Errorf("c was refused; %d wait", l.waiting.requests)
	}
}

// Memory is shared likewise: who holds much of it gives up its latest, as many as are needed, unless that would not
// make room for a request that takes up less; then nobody is dropped.
func TestMemoryIsShared(t *testing.T) {
	l := newLine(1, share{requests: 100, bytes: 100})
	l.take()
	all := map[string]*waiter{}
	f := func(id, name string, weight int, bytes int64, want error, dropped string, left int64) {
		t.Helper()
		w, err := l.join(name, weight, bytes, time.Time{})
		if err != want {
			t.Errorf("%s: got %v, want %v", id, err, want)
		}
		if err == nil {
			all[id] = w
		}
		var gone []string
		for id, w := range all {
			if w.dropped != nil {
				gone = append(gone, id)
				delete(all, id)
				if w.dropped != errBytes {
					t.Errorf("%s was dropped because %v", id, w.dropped)
				}
			}
		}
		slices.Sort(gone)
		if got := strings.Join(gone, " "); got != dropped || l.waiting.bytes != left || l.waiting.requests != len(all) {
			t.Errorf("%s: dropped %q and left %+v, want %q and %d bytes of %d", id, got, l.waiting, dropped, left, len(all))
		}
	}
	f("a1", "a", 1, 40, nil, "", 40)
	f("a2", "a", 1, 40, nil, "", 80)
	f("a3", "a", 1, 20, nil, "", 100)
	f("a4", "a", 1, 1, errBytes, "", 100) // its own is not dropped for it
	f("b1", "b", 1, 50, nil, "a2 a3", 90)
	f("b2", "b", 1, 20, errBytes, "", 90) // b would hold more than a
	f("c1", "c", 1, 101, errBytes, "", 90)
	f("c2", "c", 1, 0, nil, "", 90)
	f("d1", "d", 4, 60, nil, "b1", 100)
	f("e1", "e", 1, 10, nil, "a1", 70) // d has the weight of four
}

// Whatever happens in whatever order: places and room are bounded, no place is free while somebody waits, each
// tenant's requests leave in order, and whoever waits gets a place within a round of turns.
func TestLineProperty(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		places, room := rapid.IntRange(1, 4).Draw(r, "places"), share{rapid.IntRange(0, 12).Draw(r, "room"), rapid.Int64Range(0, 40).Draw(r, "memory")}
		l := newLine(places, room)
		weights := map[string]int{}
		for i := range rapid.IntRange(1, 5).Draw(r, "tenants") {
			weights[fmt.Sprint("t", i)] = rapid.IntRange(1, 3).Draw(r, "weight")
		}
		names := []string{}
		for name := range weights {
			names = append(names, name)
		}
		slices.Sort(names)
		holding := 0
		waiting := map[string][]*waiter{}
		settle := func() {
			for name, ws := range waiting {
				gone := 0
				for i, w := range ws {
					if !w.ended() {
						continue
					}
					if gone++; w.dropped != nil {
						continue
					}
					holding++
					if slices.ContainsFunc(ws[:i], func(o *waiter) bool { return !o.ended() }) {
						r.Fatalf("a request of %s overtook an earlier one", name)
					}
				}
				waiting[name] = slices.DeleteFunc(ws, (*waiter).ended)
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"arrive": func(r *rapid.T) {
				name := rapid.SampledFrom(names).Draw(r, "who")
				bytes := rapid.Int64Range(0, 20).Draw(r, "bytes")
				if l.waiting.requests == 0 && l.take() {
					holding++
				} else if w, err := l.join(name, weights[name], bytes, time.Time{}); err == nil {
					waiting[name] = append(waiting[name], w)
				} else if l.waiting.with(1, bytes).beyond(room) == nil {
					r.Fatalf("refused because %v, %+v of %+v being taken", err, l.waiting, room)
				}
				settle()
			},
			"end": func(r *rapid.T) {
				if holding == 0 {
					r.Skip()
				}
				holding--
				l.leave()
				settle()
			},
			"give up": func(r *rapid.T) {
				name := rapid.SampledFrom(names).Draw(r, "who")
				ws := waiting[name]
				if len(ws) == 0 {
					r.Skip()
				}
				i := rapid.IntRange(0, len(ws)-1).Draw(r, "which")
				if !l.remove(ws[i]) || l.remove(ws[i]) {
					r.Fatal("a request leaves the line once")
				}
				waiting[name] = slices.Delete(ws, i, i+1)
			},
			"": func(r *rapid.T) {
				n, parties, bytes := 0, 0, int64(0)
				for _, ws := range waiting {
					n += len(ws)
					for _, w := range ws {
						bytes += w.bytes
					}
					if len(ws) > 0 {
						parties++
					}
				}
				switch {
				case l.taken != holding || l.taken > places:
					r.Fatalf("%d places taken, %d held, of %d", l.taken, holding, places)
				case l.waiting != (share{n, bytes}) || l.waiting.beyond(room) != nil || len(l.parties) != parties || l.turns.Len() != parties:
					r.Fatalf("%d wait of %d parties, says the line: %+v of %d, %d have turns", n, parties, l.waiting, len(l.parties), l.turns.Len())
				case n > 0 && l.taken < places:
					r.Fatalf("%d wait while places are free", n)
				}
			},
		})
		// Nobody starves: once no more come, a round of turns lets in the first of every tenant.
		round := 0
		for name, ws := range waiting {
			if len(ws) > 0 {
				round += weights[name]
			}
		}
		firsts := map[string]*waiter{}
		for name, ws := range waiting {
			if len(ws) > 0 {
				firsts[name] = ws[0]
			}
		}
		for range round {
			if holding > 0 {
				holding--
				l.leave()
				settle()
			}
		}
		for name, w := range firsts {
			if !w.ended() {
				r.Fatalf("the first of %s still waits after a round of %d", name, round)
			}
		}
	})
}
