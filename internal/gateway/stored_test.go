// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

func TestStoredFollowsEvents(t *testing.T) {
	s := newStored(prometheus.NewRegistry())
	events := make(chan store.Event, 8)
	for _, e := range []store.Event{
		{Kind: store.Stored, Key: "gone"}, {Kind: store.Resync}, {Kind: store.Stored, Key: "a"}, {Kind: store.Stored, Key: "b"},
		{Kind: store.Stored, Key: "b"}, {Kind: store.Removed, Key: "a"}, {Kind: store.Removed, Key: "never"},
	} {
		events <- e
	}
	close(events)
	s.follow(events)
	for k, want := range map[embedding.Key]bool{"gone": false, "a": false, "b": true, "never": false} {
		if s.has(k) != want {
			t.Errorf("has(%s) is %v", k, !want)
		}
	}
	if n := testutil.ToFloat64(s.gauge); n != 1 {
		t.Errorf("%v keys are shown, want 1", n)
	}
}

// An image that the Store has leaves an Encoder with more than its share to another; any other image stays
// with its first choice, whatever the load, so that it is encoded once.
func TestHeldImagesGoByLoad(t *testing.T) {
	m := &image{id: "picture"}
	snap := &snapshot{}
	for i := range 3 {
		snap.Encoders = append(snap.Encoders, worker{URL: fmt.Sprint(i), Up: true, Known: true, Seen: control.Announcement{Name: fmt.Sprint(i)}})
	}
	pick := func() int {
		t.Helper()
		i, err := newChooser("", nil).encoder(snap, &request{}, m, false, &history{})
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	first := pick()
	m.held = true
	if got := pick(); got != first {
		t.Errorf("idle Encoders: %d is asked, want its first choice %d", got, first)
	}
	snap.Encoders[first].Seen.Running = 5
	if got := pick(); got == first {
		t.Error("a held image waits behind 5 others")
	}
	m.held = false
	if got := pick(); got != first {
		t.Errorf("an image that nobody has goes to %d, want its first choice %d", got, first)
	}
}
