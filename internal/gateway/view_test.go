// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// A viewer is told each change once, oldest request first, and never the names, addresses and texts that
// belong to clients and workers.
func TestViewTellsChangesAndNoSecrets(t *testing.T) {
	g := &Gateway{fleet: &fleet{state: snapshot{Encoders: []worker{{URL: "http://10.9.8.7:1", Why: "dial 10.9.8.7:1: refused"}}}},
		traces: newTraces(4), seen: newSeen()}
	for n := range 6 {
		tr := g.traces.begin(fmt.Sprint("secret-", n), "client-name", "")
		tr.stage("read")
		if n == 5 {
			tr.end(400, errors.New("the words of the prompt"))
		}
	}
	v := g.View(0)
	if len(v.Requests) != 4 || v.Requests[0].Number != 3 || v.Requests[3].Number != 6 || !v.Requests[3].Done {
		t.Fatalf("got %+v, want requests 3 to 6, the last one done", v.Requests)
	}
	told, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"secret-", "client-name", "10.9.8.7", "words"} {
		if strings.Contains(string(told), secret) {
			t.Errorf("the view tells %q: %s", secret, told)
		}
	}
	if again := g.View(v.Revision); len(again.Requests) != 0 {
		t.Errorf("nothing changed, and it tells %+v", again.Requests)
	}
	tr, _ := g.traces.get("secret-3")
	tr.stage("media")
	if after := g.View(v.Revision); len(after.Requests) != 1 || after.Requests[0].Number != 4 {
		t.Errorf("got %+v, want request 4, which changed", after.Requests)
	}
}

func TestSeenCountsImagesOnce(t *testing.T) {
	s := newSeen()
	item := func(id string, src control.Source) control.TraceItem {
		return control.TraceItem{Identifier: embedding.Identifier(id), Source: src, Bytes: 10}
	}
	now := time.Unix(1, 0)
	s.end(control.Trace{Items: []control.TraceItem{item("a", "encoded"), item("a", "encoded"), item("b", "store")}}, now)
	s.end(control.Trace{Error: "no", Items: []control.TraceItem{item("a", "encoded")}}, now)
	s.end(control.Trace{Items: []control.TraceItem{item("a", "resident")}}, now)
	got, images := s.view()
	if got.Requests != 3 || got.Failed != 1 || got.Images != 3 || got.Bytes != 30 || got.Sources["encoded"] != 1 || got.Sources["resident"] != 1 {
		t.Errorf("got %+v", got)
	}
	if len(images) != 2 || images[0].Identifier != "a" || images[0].Uses != 2 || images[0].Sources["resident"] != 1 {
		t.Errorf("got images %+v, want a first, used twice", images)
	}
}

// However many pictures pass, one that is used often stays in sight, and memory stays bounded.
func TestSeenKeepsWhatIsUsedOften(t *testing.T) {
	s := newSeen()
	use := func(id string) {
		s.end(control.Trace{Items: []control.TraceItem{{Identifier: embedding.Identifier(id), Source: "local"}}}, time.Unix(1, 0))
	}
	for n := range 4 * maxSeen {
		use(fmt.Sprint("once-", n))
		if n%2 == 0 {
			use("often")
		}
	}
	_, images := s.view()
	if len(s.images) != maxSeen || len(images) != viewed || images[0].Identifier != "often" || images[0].Uses != 2*maxSeen {
		t.Errorf("%d images are kept and %d shown, first %+v; want often with %d uses", len(s.images), len(images), images[0], 2*maxSeen)
	}
}
