// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"afterimage/internal/model"
)

// TestUpWithDecodeWorkers: a real model answers through a decode worker, whose states come by loan, as it does
// through the P/D alone; killed before an answer it costs nothing, killed within one an error frame.
func TestUpWithDecodeWorkers(t *testing.T) {
	u := startUp(t, append(pair(t, model.MLP), "--decodes", "1")...)
	file := picture(t, 64, 48, 3)
	through := u.mustAsk(t, "", file).Text
	resp := must[*http.Response](t)(u.client.HTTP.Get("http://" + u.address["decode-0"] + "/metrics"))
	if text := readAnswer(t, resp).body; !strings.Contains(text, `afterimage_decode_states_total{road="loan"} 1`) {
		t.Errorf("no state came by loan:\n%s", text)
	}
	free := u.hold(t, "decode-0")
	if alone := u.mustAsk(t, "", file).Text; alone != through || alone == "" {
		t.Errorf("the P/D answers %q alone, %q with a decode worker", alone, through)
	}
	free()
	eventually(t, "the decode worker answers again", func() bool {
		if got := u.mustAsk(t, "", file).Text; got != through {
			t.Errorf("got %q, want %q", got, through)
		}
		resp, err := u.client.HTTP.Get("http://" + u.address["decode-0"] + "/metrics")
		return err == nil && strings.Contains(readAnswer(t, resp).body, `afterimage_decode_states_total{road="loan"} 1`)
	})
	for range 20 {
		eventually(t, "the decode worker is in service", func() bool {
			_, body := u.get(t, "/v1/fleet")
			var fleet struct{ Decodes []seen }
			return u.roles()["decode-0"] != 0 && json.Unmarshal([]byte(body), &fleet) == nil && len(fleet.Decodes) == 1 && fleet.Decodes[0].Up
		})
		got := u.cutStory(t, "decode-0")
		if strings.Contains(got, `"finish_reason":"stop"`) {
			continue // the worker was faster than the kill
		}
		if !strings.Contains(got, `data: {"error":{`) || !strings.HasSuffix(got, "\n\ndata: [DONE]\n\n") || strings.Contains(got, `"finish_reason":"`) {
			t.Errorf("the stream ends: ...%s", got[max(0, len(got)-400):])
		}
		return
	}
	t.Fatal("no answer was long enough to be cut")
}
