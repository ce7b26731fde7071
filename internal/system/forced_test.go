// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"afterimage/internal/control"
)

// TestForcedRoutes names an Encoder for each picture, and a P/D, as measurements do.
func TestForcedRoutes(t *testing.T) {
	f := newFleet(t, func(o *options) { o.p2p = true })
	a, b, c := picture(t, 64, 64, 1), picture(t, 64, 64, 2), picture(t, 64, 64, 3)
	got := f.ask(t, "1,0,1", a, b, c)
	for i, want := range []string{"encoder-1", "encoder-0", "encoder-1"} {
		if got.Items[i].Encoder != want {
			t.Errorf("picture %d went to %s, want %s", i, got.Items[i].Encoder, want)
		}
	}
	body, err := json.Marshal(map[string]any{"messages": []any{user(img(a), img(b), text("what?"))}})
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(header, value string, status int, words string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.gateway.URL+"/v1/chat/completions", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(header, value)
		if got, text := f.do(t, req); got != status || !strings.Contains(text, words) {
			t.Errorf("%s: %s: %d %s, want %d with %q", header, value, got, text, status, words)
		}
	}
	refuse("X-Afterimage-Encoder", "0,1,0", 400, "names 3 Encoders for 2 media parts")
	refuse("X-Afterimage-Encoder", "0,7", 400, `no peer \"7\"`)
	refuse("X-Afterimage-Encoder", "0,", 400, "empty name")
	refuse("X-Afterimage-Prefill", "1", 400, `no peer \"1\"`)
	refuse("X-Afterimage-Prefill", "prefill-0", 200, "")
}

// S06: where there are keys, who may not choose workers is refused, in words that tell nothing of the fleet, on every
// road to a worker; admins, and tenants that the file trusts, may.
func TestWorkersAreChosenByTheTrusted(t *testing.T) {
	f := newKeyedFleet(t, keyed(t, "[tenants.bench]\nchoose_workers = true\n", "acme", "bench"), nil)
	file := picture(t, 64, 64, 1)
	chat := must[[]byte](t)(json.Marshal(map[string]any{"messages": []any{user(img(file), text("what?"))}}))
	warm := must[[]byte](t)(json.Marshal(map[string]any{"images": []any{map[string]any{"url": dataURL(file)}}}))
	said := map[string]bool{}
	for _, c := range []struct {
		path string
		body []byte
	}{{control.PathChat, chat}, {control.PathText, []byte(`{"prompt":"hi"}`)}, {control.PathWarm, warm}} {
		for header, names := range map[string][]string{control.HeaderEncoder: {"encoder-0", "nobody"}, control.HeaderPrefill: {"prefill-0", "nobody"}} {
			for i, name := range names {
				with := func(who string) answer {
					h := as(who)
					h[header] = name
					return f.send(t, http.MethodPost, c.path, h, c.body)
				}
				got := with("acme")
				if said[header+got.body] = true; got.status != http.StatusForbidden || !strings.Contains(got.body, header) {
					t.Errorf("acme: %s with %s: %s is answered %d %s", c.path, header, name, got.status, got.body)
				}
				for _, who := range []string{"bench", "ops"} {
					if got := with(who); i == 0 && got.status != http.StatusOK {
						t.Errorf("%s: %s with %s: %s is answered %d %s", who, c.path, header, name, got.status, got.body)
					}
				}
			}
		}
		if got := f.send(t, http.MethodPost, c.path, as("acme"), c.body); got.status != http.StatusOK {
			t.Errorf("without a wish: %d %s", got.status, got.body)
		}
	}
	if len(said) != 2 {
		t.Errorf("%d different refusals, want one for each header: %v", len(said), said)
	}
}
