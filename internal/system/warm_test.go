// SPDX-License-Identifier: Apache-2.0

package system

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"afterimage/internal/client"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// warm asks the gateway to warm the Store with pictures.
func (f *fleet) warm(t *testing.T, urls ...string) []control.WarmItem {
	t.Helper()
	items, err := f.client.Warm(t.Context(), "", urls)
	if err != nil {
		t.Fatal(err)
	}
	return items
}

// TestWarm: pictures are encoded once, are in the Store when the answer comes, and a chat about one is a hit
// for whichever Encoder is asked. A picture that is none fails alone.
func TestWarm(t *testing.T) {
	f := newFleet(t, nil)
	one, two := picture(t, 60, 60, 1), picture(t, 80, 60, 2)
	web := serveFile(t, two)
	got := f.warm(t, client.DataURL(one), web.URL+"/two.png", client.DataURL([]byte("no picture")), client.DataURL(one))
	for _, i := range []int{0, 1, 3} {
		if it := got[i]; it.Error != nil || it.Index != i || it.Identifier == "" || !strings.HasSuffix(string(it.Key), string(it.Identifier)) || it.Rows == 0 {
			t.Errorf("item %d: %+v, %v", i, it, it.Error)
		}
	}
	if got[0].Key != got[3].Key || got[0].Key == got[1].Key {
		t.Error("keys do not follow the pictures")
	}
	if e := got[2].Error; e == nil || e.Status != http.StatusBadRequest || e.Param != "images[2].url" {
		t.Errorf("what is no picture: %+v", e)
	}
	if n := f.encodes(t); n != 2 {
		t.Errorf("%v encodes of two pictures", n)
	}
	if !f.free() {
		t.Error("a P/D had a part in it")
	}
	for _, encoder := range []string{"encoder-0", "encoder-1"} {
		answer, err := f.client.Ask(t.Context(), client.Question{Text: "what?", Images: [][]byte{one, two}, Encoder: encoder}, nil)
		if err != nil || len(answer.Items) != 2 {
			t.Fatalf("%s: %d items, %v", encoder, len(answer.Items), err)
		}
		for _, it := range answer.Items {
			if it.Source == control.SourceEncoded || it.Encoder != encoder {
				t.Errorf("%s: image %d has source %s from %s", encoder, it.Index, it.Source, it.Encoder)
			}
		}
	}
	if n := f.encodes(t); n != 2 {
		t.Errorf("%v encodes after the chats, want 2", n)
	}
}

// TestWarmAgain: what an Encoder still has and the Store lost is stored again, and not encoded.
func TestWarmAgain(t *testing.T) {
	f := newFleet(t, nil)
	file := client.DataURL(picture(t, 60, 60, 3))
	first := f.warm(t, file)[0]
	second := f.warm(t, file)[0]
	keys := []embedding.Key{first.Key}
	if first.Source != control.SourceEncoded || second.Source != control.SourceLocal || f.encodes(t) != 1 {
		t.Errorf("sources %s and %s, %v encodes", first.Source, second.Source, f.encodes(t))
	}
	if err := f.encoders[0].store.Remove(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	f.warm(t, file)
	states, err := f.encoders[0].store.Exists(t.Context(), keys)
	if err != nil || !states[0].Present {
		t.Errorf("the Store lost an object and did not get it back: %v, %v", states, err)
	}
	if f.encodes(t) != 1 {
		t.Errorf("%v encodes", f.encodes(t))
	}
}

// TestWarmRefusals: a body that cannot be meant is refused as a whole.
func TestWarmRefusals(t *testing.T) {
	f := newFleet(t, func(o *options) { o.maxImages = 2 })
	refused := func(body string, status int, words string) {
		t.Helper()
		resp, err := http.Post(f.gateway.URL+control.PathWarm, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		got := string(b)
		if resp.StatusCode != status || !strings.Contains(got, words) {
			t.Errorf("%s: %d %s", body, resp.StatusCode, got)
		}
	}
	refused(`nonsense`, 400, "not of the form")
	refused(`{}`, 400, "0 images")
	refused(`{"images":[{"url":"a"},{"url":"b"},{"url":"c"}]}`, 400, "3 images, want 1 to 2")
	refused(`{"images":[{"url":""}]}`, 400, "images[0].url")
	refused(`{"model":"other","images":[{"url":"x"}]}`, 404, "other")
	f.stopStore()
	if it := f.warm(t, client.DataURL(picture(t, 40, 40, 9)))[0]; it.Error != nil {
		t.Errorf("without a Store: %v", it.Error) // a Store's fault fails nothing
	}
}
