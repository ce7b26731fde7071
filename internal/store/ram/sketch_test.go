// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"afterimage/internal/embedding"
)

func newTestSketch(t testing.TB) *sketch {
	t.Helper()
	s, err := newSketch(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestSketchBytes(t *testing.T) {
	for limit, want := range map[int64]int64{1: 64 << 10, 1 << 30: 1 << 20, 1<<30 + 1: 1 << 20, 1<<30 + 1024: 2 << 20, 1 << 50: 64 << 20} {
		if got := sketchBytes(limit); got != want {
			t.Errorf("sketchBytes(%d) = %d, want %d", limit, got, want)
		}
	}
}

// TestSketchProperties adds and removes at random: what is in is never absent, and after all have left
// everything is.
func TestSketchProperties(t *testing.T) {
	s := newTestSketch(t)
	rapid.Check(t, func(t *rapid.T) {
		in := map[embedding.Key]bool{}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, 200), 0, 400).Draw(t, "toggles") {
			k := embedding.Key(fmt.Sprint("key", i))
			if in[k] {
				s.remove(k)
				delete(in, k)
			} else {
				s.add(k)
				in[k] = true
			}
			for k := range in {
				if s.absent(hashOf(k)) {
					t.Fatalf("%s is in and counts as absent", k)
				}
			}
		}
		for k := range in {
			s.remove(k)
		}
		for i := range s.w {
			if s.w[i] != 0 {
				t.Fatalf("word %d is %#x after everything left", i, s.w[i])
			}
		}
	})
}

// Counters that are full stay so: more keys than they can count make nothing absent.
func TestSketchSaturates(t *testing.T) {
	s := newTestSketch(t)
	s.w = s.w[:lineWords] // one line, which all keys share
	const n = 10000
	for i := range n {
		s.add(embedding.Key(fmt.Sprint(i)))
	}
	for i := range n - 1 {
		s.remove(embedding.Key(fmt.Sprint(i)))
	}
	if last := embedding.Key(fmt.Sprint(n - 1)); s.absent(hashOf(last)) {
		t.Error("the last key counts as absent")
	}
}

// Few keys that are absent look otherwise, with as many objects as fit.
func TestSketchIsSelective(t *testing.T) {
	const limit = 64 << 20
	s, err := newSketch(limit)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for i := range limit / (64 << 10) {
		s.add(embedding.Key(fmt.Sprint("in", i)))
	}
	maybe := 0
	for i := range 10000 {
		if !s.absent(hashOf(embedding.Key(fmt.Sprint("out", i)))) {
			maybe++
		}
	}
	if maybe > 100 {
		t.Errorf("%d of 10000 absent keys look present, want at most 1 %%", maybe)
	}
}

// Through the mapping of another client, no completed PUT is ever absent, while writers store, the
// Store evicts and others look on.
func TestNoFalseNegatives(t *testing.T) {
	l := newLending(t, 4*mib)
	reader, _ := l.client(mib)
	var wg sync.WaitGroup
	for w := range 3 {
		c, a := l.client(mib)
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 4))
			for i := range 300 {
				k := embedding.Key(fmt.Sprintf("w%d-%d", w, i%80))
				if put(t, c, a, k, 16<<10+rng.IntN(64<<10), byte(w)) != nil {
					continue
				}
				states, err := reader.Exists(t.Context(), []embedding.Key{k})
				if err != nil {
					t.Errorf("Exists: %v", err)
					continue
				}
				// Each key has one writer, who is asking: what is there now was there all along.
				if _, there := l.srv.shelf.size(k); there && !states[0].Present {
					t.Errorf("%s is stored, and absent for another client", k)
				}
				if rng.IntN(4) == 0 {
					c.Remove(t.Context(), []embedding.Key{k})
				}
			}
		})
	}
	wg.Wait()
	states, err := reader.Exists(t.Context(), []embedding.Key{"never", "stored"})
	if err != nil || states[0].Present || states[1].Present {
		t.Errorf("%v, %v", states, err)
	}
	if st := reader.Stats(); st.Skipped == 0 {
		t.Errorf("%+v: the sketch answered nothing", st)
	}
}

// The sketch of a Store that is gone answers nothing.
func TestSketchOfADeadStore(t *testing.T) {
	l := newLending(t, 4*mib)
	c, _ := l.client(mib)
	ask := func() error {
		_, err := c.Exists(t.Context(), []embedding.Key{"k"})
		return err
	}
	if err := ask(); err != nil || c.Stats().Skipped != 1 {
		t.Fatalf("%v, %+v: want one key skipped", err, c.Stats())
	}
	l.stop()
	if err := ask(); err == nil {
		t.Error("a Store that is gone says that a key is absent")
	}
	if n := c.Stats().Skipped; n != 1 {
		t.Errorf("%d keys skipped, want 1", n)
	}
}
