// SPDX-License-Identifier: Apache-2.0

package system

import (
	"strings"
	"testing"

	"afterimage/internal/control"
	"afterimage/internal/route"
)

// TestEncoderThatHoldsItIsAsked: without a Store, an image goes to the Encoder that has its embedding, though its name
// is another's.
func TestEncoderThatHoldsItIsAsked(t *testing.T) {
	f := newFleet(t, func(o *options) { o.p2p, o.residents = true, 0 })
	f.stopStore()
	seed := 0
	fresh := func() []byte { // a picture that goes to encoder-0, and that encoder-1 has
		for {
			seed++
			file := picture(t, 28*(1+seed%3), 28*(1+seed/3%3), uint8(seed))
			_, id, _ := strings.Cut(string(f.key(t, file)), "@id:")
			if route.Rank(id, []route.Peer{{Name: "encoder-0", Ready: true}, {Name: "encoder-1", Ready: true}})[0] == 0 {
				f.ask(t, "1", file)
				return file
			}
		}
	}
	files := [][]byte{fresh(), fresh(), fresh(), fresh()}
	// What an Encoder says that it holds is all of one moment: a gateway which knows of a later one knows of these.
	eventually(t, "the gateway knows of what the Encoder holds", func() bool {
		return f.ask(t, "", fresh()).Items[0].Encoder == "encoder-1"
	})
	for i, file := range files {
		if a := f.ask(t, "", file); a.Items[0].Encoder != "encoder-1" || a.Items[0].Source != control.SourceLocal {
			t.Errorf("picture %d: %s of %s, want that which encoder-1 has", i, a.Items[0].Source, a.Items[0].Encoder)
		}
	}
}
