// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
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
