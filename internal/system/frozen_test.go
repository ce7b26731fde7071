// SPDX-License-Identifier: Apache-2.0

package system

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/client"
	"afterimage/internal/control"
	"afterimage/internal/gateway"
)

// freeze has a node answer nothing more, as a stopped process does, from the first call to path on,
// which gets say as the beginning of its answer, until thaw.
func (n *node) freeze(path, say string) (thaw func()) {
	var frozen atomic.Bool
	over := make(chan struct{})
	n.fail(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == path && frozen.CompareAndSwap(false, true) && say != "" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, say)
			_ = http.NewResponseController(w).Flush()
		}
		if !frozen.Load() {
			return false
		}
		select {
		case <-over:
		case <-r.Context().Done():
		}
		return true
	})
	return func() { n.heal(); close(over) }
}

// impatient has a gateway notice silence in a moment.
func impatient(o *options) {
	o.gateway = func(c *gateway.Config) { c.ProbeTimeout, c.SilenceLimit = 50*time.Millisecond, 200*time.Millisecond }
}

// TestFrozenPrefill: a P/D that takes a chat call and says nothing more holds its client no longer than
// the limit on silence, whether its answer has begun or not.
func TestFrozenPrefill(t *testing.T) {
	f := newFleet(t, impatient)
	for say, want := range map[string]string{
		"": "503: no P/D is ready",
		"data: {\"choices\":[{\"delta\":{\"content\":\"The\"}}]}\n\n": "cut off: prefill-0: it gave no sign of life",
	} {
		thaw := f.prefill.freeze(control.PathChat, say)
		a, err := f.client.Ask(t.Context(), client.Question{Text: "hello"}, nil)
		if err == nil || !strings.Contains(err.Error(), want) || (say == "") != (a.Text == "") {
			t.Errorf("after %q: got %q, %v; want %q", say, a.Text, err, want)
		}
		thaw()
		eventually(t, "P/D is back", func() bool { return f.ready() == nil })
	}
}

// TestFrozenEncoder: its images go to the other Encoder, and nobody takes the P/D that waits for them
// for frozen.
func TestFrozenEncoder(t *testing.T) {
	f := newFleet(t, func(o *options) {
		impatient(o)
		o.p2p, o.residents = true, 0 // else the second request needs no Encoder
	})
	ask := func() (client.Answer, error) {
		return f.client.Ask(t.Context(), client.Question{Text: "q", Images: [][]byte{picture(t, 40, 30, 7)}}, nil)
	}
	first := must[client.Answer](t)(ask())
	frozen := f.encoders[0]
	if first.Items[0].Encoder == "encoder-1" {
		frozen = f.encoders[1]
	}
	defer frozen.freeze(control.PathEncode, "")()
	again, err := ask()
	if err != nil || again.Text != first.Text || again.Attempts != 2 || again.Items[0].Encoder == first.Items[0].Encoder {
		t.Errorf("got %+v, %v; want the first answer, by the other Encoder", again, err)
	}
}
