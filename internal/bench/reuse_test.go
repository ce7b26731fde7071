// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"afterimage/internal/client"
	"afterimage/internal/control"
)

// fakeFleet answers as two Encoders and a Store would: each picture is encoded once, and is in the
// Store from then on.
type fakeFleet struct {
	inStore map[string]bool
	local   [2]map[string]bool
	log     []string
	answer  client.Answer // what all answers have in common
}

func newFakeFleet() *fakeFleet {
	return &fakeFleet{inStore: map[string]bool{}, local: [2]map[string]bool{{}, {}}, answer: client.Answer{Text: "Red."}}
}

func (f *fakeFleet) ask(_ context.Context, encoder int, picture []byte) (client.Answer, error) {
	it := client.Item{Source: control.SourceEncoded, MS: 200}
	switch {
	case f.local[encoder][string(picture)]:
		it.Source, it.MS = control.SourceLocal, 1
	case f.inStore[string(picture)]:
		it.Source, it.MS = control.SourceStore, 10
	}
	f.local[encoder][string(picture)] = true
	f.log = append(f.log, fmt.Sprintf("%s on %d: %s", picture, encoder, it.Source))
	a := f.answer
	a.Items, a.TTFTMS = []client.Item{it}, 100+it.MS
	return a, nil
}

// publish stands for the publisher of Encoder 0.
func (f *fakeFleet) publish(_ context.Context, n int) error {
	for name := range f.local[0] {
		f.inStore[name] = true
	}
	if len(f.inStore) != n {
		return fmt.Errorf("%d published, want %d", len(f.inStore), n)
	}
	return nil
}

func TestReuse(t *testing.T) {
	f, done := newFakeFleet(), 0
	r := reuse{ask: f.ask, published: f.publish, done: func(int) { done++ }}
	got, err := r.run(t.Context(), [][]byte{[]byte("warm"), []byte("a"), []byte("b")})
	if err != nil {
		t.Fatal(err)
	}
	order := []string{
		"warm on 0: encoded", "warm on 1: store", "warm on 1: local", "a on 0: encoded", "a on 1: store", "a on 1: local",
		"b on 0: encoded", "b on 1: store", "b on 1: local",
	}
	if d := cmp.Diff(order, f.log); d != "" || done != 3 {
		t.Errorf("%d pictures done; requests (-want +got):\n%s", done, d)
	}
	for name, n := range map[string][]float64{"fresh": got.fresh.item, "store": got.store.item, "local": got.local.text} {
		if len(n) != 2 {
			t.Errorf("%s has %d times, want 2: the first picture only warms up", name, len(n))
		}
	}
	rows := got.rows(0.1)
	if *rows[0].Ratio != 0.05 || !*rows[0].OK || rows[1].OK != nil || *rows[3].PeerValue != 300 {
		t.Errorf("rows %+v", rows)
	}
}

func TestReuseRefusesOtherSources(t *testing.T) {
	f := func(spoil func(*fakeFleet, *reuse), want string) {
		t.Helper()
		fleet := newFakeFleet()
		r := reuse{ask: fleet.ask, published: fleet.publish}
		spoil(fleet, &r)
		_, err := r.run(t.Context(), [][]byte{[]byte("a")})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
	f(func(f *fakeFleet, _ *reuse) { f.inStore["a"] = true }, `encoder-0 took the embedding of request  from "store", want "encoded"`)
	f(func(_ *fakeFleet, r *reuse) { r.published = func(context.Context, int) error { return nil } }, `from "encoded", want "store"`)
	f(func(f *fakeFleet, _ *reuse) { f.answer.Text = "" }, "without text")
	f(func(_ *fakeFleet, r *reuse) {
		r.ask = func(context.Context, int, []byte) (client.Answer, error) { return client.Answer{}, nil }
	}, "0 items, want 1")
	f(func(_ *fakeFleet, r *reuse) {
		r.published = func(context.Context, int) error { return errors.New("the Store is full") }
	}, "the Store is full")
}

// metricsPage serves pages of metrics, one after the other, the last one for ever.
func metricsPage(t *testing.T, pages ...string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "# HELP afterimage_publish_objects_total x\n", pages[0])
		if len(pages) > 1 {
			pages = pages[1:]
		}
	}))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		s.Close()
	})
	return s.URL
}

func TestWaitPublished(t *testing.T) {
	page := func(stored, exists, full int) string {
		return fmt.Sprintf(publishTotal+"{outcome=\"full_items\"} %d\n"+publishStored+" %d\n"+publishExists+" %d\n", full, stored, exists)
	}
	if err := waitPublished(t.Context(), metricsPage(t, page(1, 0, 0), page(1, 1, 0), page(2, 1, 0)), 2); err != nil {
		t.Errorf("a publication that comes later: %v", err)
	}
	err := waitPublished(t.Context(), metricsPage(t, page(1, 0, 1)), 2)
	if err == nil || !strings.Contains(err.Error(), "dropped 1 publications") {
		t.Errorf("a dropped publication: got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("told to stop"))
	if err := waitPublished(ctx, metricsPage(t, page(1, 0, 0)), 2); err == nil {
		t.Error("no error though the context had ended")
	}
}

func TestEncoderURL(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"encoders":[{"url":"http://h:1","announcement":{"name":"encoder-1"}},{"url":"http://h:0","announcement":{"name":"encoder-0"}}]}`)
	}))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	if got, err := encoderURL(t.Context(), s.URL, "encoder-0"); got != "http://h:0" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := encoderURL(t.Context(), s.URL, "encoder-2"); err == nil {
		t.Error("an Encoder that is not there was found")
	}
}
