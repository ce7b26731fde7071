// SPDX-License-Identifier: Apache-2.0

package system

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"afterimage/internal/control"
	"afterimage/internal/route"
)

// foreign returns pictures that one Encoder has and whose names are the other's: a client has named it.
func (f *fleet) foreign(t *testing.T, n int) (files [][]byte) {
	t.Helper()
	for seed := 1; len(files) < n; seed++ {
		file := picture(t, 28*(1+seed%3), 28*(1+seed/3%3), uint8(seed))
		_, id, _ := strings.Cut(string(f.key(t, file)), "@id:")
		if route.First(id, []route.Peer{{Name: "encoder-0", Ready: true}, {Name: "encoder-1", Ready: true}}) == 0 {
			f.ask(t, "1", file)
			files = append(files, file)
		}
	}
	return files
}

// follows waits until the gateway knows what caches hold at this moment.
func (f *fleet) follows(t *testing.T) {
	t.Helper()
	eventually(t, "the gateway knows what Encoders hold", func() bool {
		held := 0
		for _, e := range f.encoders {
			held += e.cache.Stats().Entries
		}
		return f.gateway.count(t, "afterimage_gateway_held_keys", "") == float64(held)
	})
}

// TestEncoderThatHoldsItIsAsked: without a Store, an image goes to the Encoder that has its embedding, though its name
// is another's, and that of every gateway, one that begins later too. It is a hint: an Encoder that has lost the
// embedding unheard encodes it. One that leaves is not asked, and the image is at home from then on.
func TestEncoderThatHoldsItIsAsked(t *testing.T) {
	f := newFleet(t, func(o *options) { o.p2p, o.residents = true, 0 })
	f.stopStore()
	files := f.foreign(t, 4)
	f.follows(t)
	late := f.secondGateway(t, nil)
	asked := func(g *fleet, file []byte, encoder string, source control.Source) {
		t.Helper()
		if it := g.ask(t, "", file).Items[0]; it.Encoder != encoder || it.Source != source {
			t.Errorf("%s of %s, want %s of %s", it.Source, it.Encoder, source, encoder)
		}
	}
	for _, file := range files {
		asked(f, file, "encoder-1", control.SourceLocal)
		asked(late, file, "encoder-1", control.SourceLocal)
	}
	holder := f.encoders[1]
	holder.failOn(control.PathHeld, answers(http.StatusServiceUnavailable, "{}"))
	holder.cache.Remove(f.key(t, files[0]))
	asked(f, files[0], "encoder-1", control.SourceEncoded)
	holder.announce(t, func(a *control.Announcement) { a.Ready, a.Reason = false, control.Draining })
	eventually(t, "the gateway knows that the Encoder leaves", func() bool { return !f.allUp(t) })
	asked(f, files[1], "encoder-0", control.SourceEncoded)
	holder.heal()
	eventually(t, "the Encoder is back", func() bool { return f.allUp(t) })
	f.follows(t)
	asked(f, files[1], "encoder-0", control.SourceLocal)
	asked(f, files[2], "encoder-1", control.SourceLocal)
}

// GET /v1/held says what came since a version, and refuses what is none.
func TestHeldOfAnEncoder(t *testing.T) {
	f := newFleet(t, nil)
	get := func(query string) (int, string) {
		resp := must[*http.Response](t)(http.Get(f.encoders[0].URL + control.PathHeld + query))
		defer resp.Body.Close()
		return resp.StatusCode, string(must[[]byte](t)(io.ReadAll(resp.Body)))
	}
	if status, body := get(""); status != 200 || !strings.Contains(body, `"whole":true`) || strings.Contains(body, `"in"`) {
		t.Errorf("of nothing: %d %s", status, body)
	}
	f.ask(t, "0", picture(t, 28, 28, 1))
	if status, body := get("?since=0"); status != 200 || !strings.Contains(body, `"version":1,"whole":true,"in":"`) {
		t.Errorf("of one: %d %s", status, body)
	}
	if status, body := get("?since=1"); status != 200 || strings.Contains(body, `"in"`) || strings.Contains(body, `"whole"`) {
		t.Errorf("no news: %d %s", status, body)
	}
	for _, bad := range []string{"-1", "x", "1.5", "99999999999999999999999"} {
		if status, body := get("?since=" + bad); status != 400 || !strings.Contains(body, "give the one of an earlier answer") {
			t.Errorf("since=%s: %d %s", bad, status, body)
		}
	}
}
