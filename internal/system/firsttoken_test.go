// SPDX-License-Identifier: Apache-2.0

package system

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"afterimage/internal/control"
)

// TestTraceSplitsWholeAnswers: of an answer that is not streamed, the trace tells the prompt from the tokens that
// follow, in two ways and in three.
func TestTraceSplitsWholeAnswers(t *testing.T) {
	const perToken, tokens = 20 * time.Millisecond, 10
	for stage, decodes := range map[string]int{"prefill": 0, "handoff": 1} {
		f := newFleet(t, func(o *options) { o.decodes, o.decodeTime, o.answerLen = decodes, perToken, tokens })
		status, header, body := f.post(t, nil, messages(turn{"hi"})...)
		content(t, status, body)
		if header.Get(control.HeaderFirstToken) != "" {
			t.Error("the client is told the worker's times")
		}
		var tr control.Trace
		shown := f.send(t, http.MethodGet, control.PathTraces+"/"+header.Get(control.HeaderTrace), nil, nil)
		if err := json.Unmarshal([]byte(shown.body), &tr); err != nil {
			t.Fatal(err)
		}
		n := len(tr.Stages)
		if n < 2 || tr.Stages[n-2].Name != stage || tr.Stages[n-1].Name != "total" {
			t.Fatalf("stages %+v, want %s before the total", tr.Stages, stage)
		}
		// The device takes at least so long for the tokens after the first.
		if took, least := tr.Stages[n-1].MS-tr.Stages[n-2].MS, float64((tokens-1)*perToken/time.Millisecond); took < least {
			t.Errorf("%s: the tokens took %v ms of %+v, want at least %v", stage, took, tr.Stages, least)
		}
	}
}
