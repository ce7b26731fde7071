// SPDX-License-Identifier: Apache-2.0

package system

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// seen is a worker as /v1/fleet shows it.
type seen struct {
	URL          string
	Up, Mismatch bool
	Why          string
}

// seen lists the workers as the gateway sees them, Encoders first.
func (f *fleet) seen(t *testing.T) []seen {
	t.Helper()
	var all struct{ Encoders, Prefills, Decodes []seen }
	if got := f.send(t, http.MethodGet, "/v1/fleet", f.admin, nil); json.Unmarshal([]byte(got.body), &all) != nil {
		t.Fatalf("%d %s", got.status, got.body)
	}
	return slices.Concat(all.Encoders, all.Prefills, all.Decodes)
}

// TestMismatchIsShownAndServesNothing: a worker that does not fit the fleet is out of service, with both
// values, and a fleet without another says 503.
func TestMismatchIsShownAndServesNothing(t *testing.T) {
	f := newFleet(t, func(o *options) { o.encoders = 1 })
	file := picture(t, 30, 30, 1)
	for name, c := range map[string]struct {
		change func(*control.Announcement)
		why    []string
	}{
		"engine":    {func(a *control.Announcement) { a.Engine = "other engine" }, []string{"other engine", "modelled device"}},
		"cols":      {func(a *control.Announcement) { a.Cols = 17 }, []string{"17", "16"}},
		"wire":      {func(a *control.Announcement) { a.Wire = 77 }, []string{"wire version 77", "wire version", "has 2"}},
		"keys":      {func(a *control.Announcement) { a.Keys = 78 }, []string{"key version 78", "and 1"}},
		"dtype":     {func(a *control.Announcement) { a.DType = embedding.Float16 }, []string{"float16", "float32"}},
		"model":     {func(a *control.Announcement) { a.Model = "other" }, []string{"other", "modelled"}},
		"namespace": {func(a *control.Announcement) { a.Namespace = nil }, []string{"no namespace"}},
		"role":      {func(a *control.Announcement) { a.Role = "prefill" }, []string{"is a prefill, configured as encoder"}},
		"not ready": {func(a *control.Announcement) { a.Ready, a.Reason = false, "reading weights" }, []string{"reading weights"}},
	} {
		f.encoders[0].announce(t, c.change)
		eventually(t, name+": out of service", func() bool { return f.ready() != nil })
		why := f.seen(t)[0].Why
		status, header, body := f.post(t, nil, user(img(file)))
		for _, w := range c.why {
			if !strings.Contains(why, w) || !strings.Contains(body, w) {
				t.Errorf("%s: /v1/fleet says %q, the client sees %s; want %q in both", name, why, body, w)
			}
		}
		if status != 503 || header.Get("Retry-After") == "" {
			t.Errorf("%s: status %d, Retry-After %q, want 503 with it", name, status, header.Get("Retry-After"))
		}
		if status, _, body := f.post(t, nil, user(text("hello"))); status != 200 {
			t.Errorf("%s: text needs no Encoder, got %d: %s", name, status, body)
		}
		f.encoders[0].heal()
		eventually(t, name+": back", func() bool { return f.ready() == nil })
	}
}

// TestEncodersOfTwoNamespaces: identifiers are built for one; the other is out of service.
func TestEncodersOfTwoNamespaces(t *testing.T) {
	f := newFleet(t, nil)
	f.encoders[1].announce(t, func(a *control.Announcement) { a.Namespace.Revision = "r2" })
	eventually(t, "the second is out", func() bool { return f.seen(t)[1].Mismatch })
	if why := f.seen(t)[1].Why; !strings.Contains(why, "r2") || !strings.Contains(why, "encoder-0") {
		t.Errorf("why: %q", why)
	}
	if a := f.ask(t, "", picture(t, 30, 30, 2)); a.Items[0].Encoder != "encoder-0" {
		t.Errorf("answered with the help of %s", a.Items[0].Encoder)
	}
}
