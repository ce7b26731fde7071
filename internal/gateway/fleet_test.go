// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/openai"
)

func announced(role, name, model, engine string, cols int) worker {
	return worker{URL: name, Known: true, Up: true, Seen: control.Announcement{
		Role: role, Name: name, Model: model, Engine: engine, Cols: cols, DType: embedding.Float32, Ready: true,
		Namespace: &embedding.Namespace{Model: model, Encoder: "e", DType: embedding.Float32, Protocol: embedding.A1},
	}}
}

func TestPair(t *testing.T) {
	f := func(name string, prefills, encoders []worker, up string) {
		t.Helper()
		s := snapshot{Prefills: prefills, Encoders: encoders}
		s.pair()
		var got []string
		for _, w := range append(append([]worker{}, s.Prefills...), s.Encoders...) {
			if w.Up {
				got = append(got, w.URL)
			} else if w.Mismatch != (w.Why != "") {
				t.Errorf("%s: %s is out, mismatch %v, why %q", name, w.URL, w.Mismatch, w.Why)
			}
		}
		if strings.Join(got, " ") != up {
			t.Errorf("%s: in service %v, want %s", name, got, up)
		}
	}
	p := announced("prefill", "p", "m", "x", 4)
	e := announced("encoder", "e", "m", "x", 4)
	one := func(ws ...worker) []worker { return append([]worker{}, ws...) }
	f("all fit", one(p), one(e), "p e")
	f("no P/D known", nil, one(e), "e")
	f("no Encoder", one(p), nil, "p")
	f("engine", one(p), one(e, announced("encoder", "f", "m", "y", 4)), "p e")
	f("cols", one(p), one(announced("encoder", "f", "m", "x", 5), e), "p e")
	f("model", one(p, announced("prefill", "q", "n", "x", 4)), one(e), "p e")
	other := announced("encoder", "f", "m", "x", 4)
	other.Seen.Namespace = &embedding.Namespace{Model: "m", Revision: "2", Encoder: "e", DType: embedding.Float32, Protocol: embedding.A1}
	f("namespace: the first counts", one(p), one(e, other), "p e")
	f("namespace: the first counts, the other way", one(p), one(other, e), "p f")
	f("an unknown P/D decides nothing", one(worker{URL: "q"}, p), one(e), "p e")
	f("never announced", one(p), one(worker{URL: "f"}, e), "p e")
}

func TestModels(t *testing.T) {
	p := announced("prefill", "p", "m", "x", 4)
	q := announced("prefill", "q", "n", "x", 4)
	s := &snapshot{Prefills: []worker{p, q, announced("prefill", "r", "m", "x", 4)}}
	s.pair()
	f := func(s *snapshot, name string, status int) {
		t.Helper()
		err := s.checkModel(name)
		if got := 200; err != nil {
			got = openai.AsError(err).Status
			if got != status {
				t.Errorf("model %q: %d, want %d", name, got, status)
			}
		} else if got != status {
			t.Errorf("model %q passed, want %d", name, status)
		}
	}
	f(s, "m", 200)
	f(s, "", 200)
	f(s, "n", 404) // q does not fit the fleet, so nobody serves it
	f(s, "M", 404)
	f(&snapshot{}, "anything", 200) // nobody is known: a 503 follows
	if got := s.models(); len(got) != 1 || got[0].Model != "m" {
		t.Errorf("models %v", got)
	}
}

func TestTraces(t *testing.T) {
	ts := newTraces(3)
	for _, name := range []string{"a", "b", "c", "d"} {
		ts.begin(name, "the same", "")
	}
	for name, want := range map[string]bool{"a": false, "b": true, "c": true, "d": true, "": false} {
		if _, ok := ts.get(name); ok != want {
			t.Errorf("%q remembered: %v, want %v", name, ok, want)
		}
	}
	if _, ok := ts.get("the same"); ok {
		t.Error("a client's name for its request finds a trace")
	}
	for i := range 100 {
		ts.begin(fmt.Sprint(i), "", "")
	}
	if len(ts.byName) != 3 {
		t.Errorf("%d traces kept, want 3", len(ts.byName))
	}
	tr := ts.begin("x", "y", "")
	tr.attempt()
	tr.item(&image{parts: []int{2, 0}, id: "i"}, "e", control.EncodedItem{Source: control.SourceStore})
	tr.attempt() // forgets what the first attempt found
	tr.item(&image{parts: []int{1}, id: "j"}, "e", control.EncodedItem{Source: control.SourceLocal})
	tr.item(&image{parts: []int{2, 0}, id: "i"}, "f", control.EncodedItem{Source: control.SourceEncoded})
	c := tr.copy()
	if c.Attempts != 2 || len(c.Items) != 3 || c.Items[0].Index != 0 || c.Items[1].Identifier != "j" || c.Items[2].Encoder != "f" {
		t.Errorf("%+v", c)
	}
}

// TestGeometries: each size is asked for once, of whichever Encoder, and kept apart by fingerprint.
func TestGeometries(t *testing.T) {
	var asked []string
	answer := `{"sizes":[{"rows":1},{"rows":2}]}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		fmt.Fprint(w, answer)
	}))
	defer s.Close()
	g := New(Config{PrepareTimeout: 10 * time.Second, Registry: prometheus.NewRegistry()})
	defer g.Close()
	e := announced("encoder", "e", "m", "x", 4)
	e.URL = s.URL
	ask := func(sizes ...control.Size) ([]control.Geometry, error) { return g.geometries(t.Context(), e, sizes) }
	a, b, c := control.Size{Width: 1, Height: 1}, control.Size{Width: 2, Height: 1}, control.Size{Width: 1, Height: 2}
	got, err := ask(a, b)
	if err != nil || got[0].Rows != 1 || got[1].Rows != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	if got, err = ask(b, a, b); err != nil || got[0].Rows != 2 || got[1].Rows != 1 || len(asked) != 1 {
		t.Errorf("again: %v, %v, asked %d times", got, err, len(asked))
	}
	if _, err = ask(a, c); err == nil || !strings.Contains(err.Error(), "2 geometries for 1 sizes") {
		t.Errorf("too many answers: %v", err)
	}
	answer = `{"sizes":[{"rows":3}]}`
	e.Seen.Namespace = &embedding.Namespace{Encoder: "other weights"}
	if got, err = ask(a); err != nil || got[0].Rows != 3 {
		t.Errorf("another fingerprint: %v, %v", got, err)
	}
	for range 3 {
		for i := range maxGeometries {
			g.geo.put(geoKey{size: control.Size{Width: i}}, control.Geometry{})
		}
	}
	if n := len(g.geo.known); n > maxGeometries {
		t.Errorf("%d geometries kept, at most %d", n, maxGeometries)
	}
}
