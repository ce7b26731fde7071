// SPDX-License-Identifier: Apache-2.0

package system

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/admit"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/engine/device"
	"afterimage/internal/prefill"
	"afterimage/internal/transport"
)

// newHandOff is what the P/D hands prompts over with, where there are decode workers.
func (f *fleet) newHandOff(t *testing.T, o options) (over prefill.HandOff) {
	if o.decodes == 0 {
		return over
	}
	over.Arena = f.states[0]
	over.Sender = must[transport.Sender](t)(transport.NewSender(transport.SenderConfig{Engine: device.Name, Cols: cols, Logger: quiet}))
	return over
}

func (f *fleet) startDecodes(t *testing.T, o options) {
	for i := range o.decodes {
		name := fmt.Sprintf("decode-%d", i)
		memory, reg := newArena(t, name, cmp.Or(o.stateBytes, arenaSize)), prometheus.NewRegistry()
		receiver := must[transport.Receiver](t)(transport.NewReceiver(transport.ReceiverConfig{
			Arena: memory, Address: "127.0.0.1:0", Engine: device.Name, Cols: cols, Metrics: transport.NewMetrics(reg), Logger: quiet,
		}))
		p := must[*prefill.Prefill](t)(prefill.New(prefill.Config{
			Decode: true, Name: name, Version: "test", Engine: textEngine(t, o), Receiver: receiver, Protocol: embedding.A1,
			PoolBytes: memory.Stats().Capacity, MaxBodyBytes: 64 << 20, GrantTimeout: 5 * time.Second, PrepareTTL: 30 * time.Second,
			ItemTimeout: o.itemWait, MaxWaiting: 64, WriteTimeout: 10 * time.Second, Registry: reg, Logger: quiet, Arena: memory,
		}))
		mux := http.NewServeMux()
		p.Routes(mux)
		n := newNode(behind(admit.Fleet(mux, tokens(o.token))), reg)
		f.decodes, f.states = append(f.decodes, n), append(f.states, memory)
		t.Cleanup(func() {
			n.Close()
			p.Close()
			receiver.Close()
		})
	}
}

// threeWays has one decode worker.
func threeWays(o *options) { o.decodes = 1 }

// TestThreeWaysAnswerAsOne: with a decode worker, answers are those of one process, and it is the one that gives
// them; the P/D computes prompts, keeps them for those that begin alike, and generates nothing.
func TestThreeWaysAnswerAsOne(t *testing.T) {
	f := newFleet(t, threeWays)
	a, b := picture(t, 60, 41, 1), picture(t, 60, 42, 2)
	for i, turns := range [][]turn{{{"hi"}}, {{a, "what?"}}, {{a, b, "which?"}}, {{"first", b, "?"}, {a, "second?"}}, {{a, "what?"}}} {
		status, header, body := f.post(t, nil, messages(turns...)...)
		if got, want := content(t, status, body), reference(t, nil, turns...); got != want {
			t.Errorf("conversation %d: answer %q, one process says %q", i, got, want)
		}
		var tr control.Trace
		shown := f.send(t, http.MethodGet, control.PathTraces+"/"+header.Get(control.HeaderTrace), nil, nil)
		if err := json.Unmarshal([]byte(shown.body), &tr); err != nil {
			t.Fatal(err)
		}
		stages := make([]string, len(tr.Stages))
		for i, s := range tr.Stages {
			stages[i] = s.Name
		}
		if tr.Prefill != "prefill-0" || tr.Decode != "decode-0" || tr.HandOffBytes == 0 || tr.HandOffMS == 0 || tr.Attempts != 1 ||
			!slices.Contains(stages, "prefill") || !slices.Contains(stages, "handoff") {
			t.Errorf("conversation %d: trace %+v", i, tr)
		}
	}
	if n := f.prefill.count(t, "afterimage_prefill_generated_tokens_total", ""); n != 0 {
		t.Errorf("the P/D generated %v tokens", n)
	}
	f.decodes[0].gives(t, 5)
	if n := f.prefill.count(t, "afterimage_prefill_reused_cells_total", ""); n == 0 {
		t.Error("no prompt was reused")
	}
	if n := f.prefill.count(t, "afterimage_prefill_handoff_bytes_total", ""); n == 0 {
		t.Error("no bytes were handed over")
	}
	eventually(t, "the memory is back", f.free)
}

func TestThreeWaysTakeAllOptions(t *testing.T) { samplingOptions(t, newFleet(t, threeWays)) }

func TestThreeWaysStreamSeveralChoices(t *testing.T) {
	severalStreamedChoices(t, newFleet(t, threeWays))
}

// TestThreeWaysCompleteText: the completions API goes the same way; of several prompts the P/D gives all answers.
func TestThreeWaysCompleteText(t *testing.T) {
	two, three := newFleet(t, nil), newFleet(t, threeWays)
	for i, body := range []string{
		`{"prompt":"once upon","max_tokens":9,"temperature":0}`,
		`{"prompt":"once upon","max_tokens":9,"temperature":0,"echo":true,"n":2}`,
		`{"prompt":["once","upon"],"max_tokens":9,"temperature":0}`,
		`{"prompt":"once upon","max_tokens":9,"temperature":0,"stop":["e"]}`,
	} {
		want := choicesOf(t, two.send(t, http.MethodPost, "/v1/completions", nil, []byte(body)).body)
		if got := choicesOf(t, three.send(t, http.MethodPost, "/v1/completions", nil, []byte(body)).body); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
		three.decodes[0].gives(t, []float64{1, 2, 2, 3}[i])
	}
}

// gives checks how many answers a decode worker has given. One is counted when its handler ends, which may be after
// its client has it.
func (n *node) gives(t *testing.T, want float64) {
	t.Helper()
	count := func() float64 { return n.count(t, "afterimage_decode_requests_total", "") }
	eventually(t, fmt.Sprintf("the decode worker has given %v answers", want), func() bool { return count() >= want })
	if got := count(); got != want {
		t.Errorf("the decode worker has given %v answers, want %v", got, want)
	}
}

// choicesOf is what does not differ between two answers to one request.
func choicesOf(t *testing.T, body string) string {
	t.Helper()
	var a struct{ Choices, Usage json.RawMessage }
	if err := json.Unmarshal([]byte(body), &a); err != nil || a.Choices == nil {
		t.Fatalf("%v: %s", err, body)
	}
	return string(a.Choices) + string(a.Usage)
}
