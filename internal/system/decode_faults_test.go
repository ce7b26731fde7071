// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"afterimage/internal/control"
)

// decodeFleet has n decode workers and long answers.
func decodeFleet(t *testing.T, n int) *fleet {
	return newFleet(t, func(o *options) { o.decodes, o.answerLen = n, 40 })
}

// TestDecodeWorkerDiesAtEachStep: what fails before the first byte is taken over by another decode worker, from the
// same state, or by the P/D; the prompt is computed once, or what was kept of it is used again.
func TestDecodeWorkerDiesAtEachStep(t *testing.T) {
	seed := uint8(200)
	for _, n := range []int{1, 2} {
		for _, s := range []step{{control.PathAdopt, false}, {control.PathAdopt, true}, {control.PathChat, false}, {control.PathChat, true}} {
			f := decodeFleet(t, n)
			seed++
			file := picture(t, 30, 30, seed)
			kill(s, nil, f.decodes...)
			status, _, body := f.post(t, nil, messages(turn{file, "what?"})...)
			if got, want := content(t, status, body), reference(t, func(o *options) { o.answerLen = 40 }, turn{file, "what?"}); got != want {
				t.Errorf("%d decode workers, %v: answer %q, one process says %q", n, s, got, want)
			}
			eventually(t, "the answer is counted", func() bool { // a call that is sent again may reach the same worker
				byDecode, byPD := f.gateway.count(t, "afterimage_gateway_handoffs_total", "decode"), f.gateway.count(t, "afterimage_gateway_handoffs_total", "alone")
				return byDecode+byPD == 1 && (n == 1 || byDecode == 1)
			})
			if n := f.encodes(t); n != 1 {
				t.Errorf("%v: %v encodes", s, n)
			}
			eventually(t, "the memory is back", f.free)
		}
	}
}

// TestDecodeWorkerRefuses: one that is full, or of another engine, is passed over.
func TestDecodeWorkerRefuses(t *testing.T) {
	f := decodeFleet(t, 2)
	for i, status := range []int{429, 503, 422, 500} {
		for _, path := range []string{control.PathAdopt, control.PathChat} {
			for _, d := range f.decodes {
				d.once(path, func(w http.ResponseWriter, r *http.Request) bool {
					answers(status, `{"error":{"message":"not now","type":"SomeError","param":null,"code":1}}`)(w, r)
					return true
				})
			}
			f.ask(t, "", picture(t, 30, 40+i, 17))
		}
	}
	eventually(t, "the memory is back", f.free)
}

// TestDeliveryOfAStateFails: a P/D that dies while it delivers costs an attempt, one that cannot deliver a decode
// worker.
func TestDeliveryOfAStateFails(t *testing.T) {
	f := decodeFleet(t, 2)
	for i, fault := range []http.HandlerFunc{
		hangUp,
		answers(503, `{"error":{"message":"did not reach it","type":"SomeError","param":null,"code":1}}`),
		answers(200, `no JSON`),
	} {
		f.prefill.once(control.PathHandOff, func(w http.ResponseWriter, r *http.Request) bool { fault(w, r); return true })
		status, header, body := f.post(t, nil, messages(turn{picture(t, 40, 30+i, 18)})...)
		// The only P/D is down until it is probed again; whether that is in time is chance.
		if status != 200 && (status != 503 || header.Get("Retry-After") == "") {
			t.Errorf("fault %d: %d %s", i, status, body)
		}
		f.prefill.heal()
		eventually(t, "the P/D is back", func() bool { return f.ready() == nil })
		eventually(t, "the memory is back", f.free)
	}
}

// TestDecodeWorkerDiesMidway: once the answer has begun, it ends in an error frame, on the client's side and in
// the counts.
func TestDecodeWorkerDiesMidway(t *testing.T) {
	f := newFleet(t, func(o *options) { o.decodes, o.answerLen, o.decodeTime = 1, 1000, 5*time.Millisecond })
	first := make(chan struct{})
	body := make(chan string, 1)
	go func() { body <- f.readStream(t, first) }()
	<-first
	f.decodes[0].CloseClientConnections()
	got := <-body
	if !strings.Contains(got, `data: {"error":{`) || !strings.Contains(got, "decode-0") || !strings.HasSuffix(got, "data: [DONE]\n\n") || strings.Contains(got, `"finish_reason":"stop"`) {
		t.Errorf("the stream ends in %q", got[max(0, len(got)-300):])
	}
	if n := f.gateway.count(t, "afterimage_gateway_cut_streams_total", ""); n != 1 {
		t.Errorf("%v cut streams counted, want 1", n)
	}
	eventually(t, "the memory is back", f.free)
	eventually(t, "the decode worker is idle", func() bool { a := f.decodes[0].announcement(t); return a.Running+a.Waiting == 0 })
}

// readStream asks for a streamed answer and reads it to its end; first is closed when it has begun.
func (f *fleet) readStream(t *testing.T, first chan<- struct{}) string {
	resp, err := f.gateway.Client().Post(f.gateway.URL+control.PathChat, "application/json",
		strings.NewReader(`{"messages":[{"role":"user","content":"hi"}],"temperature":0,"stream":true}`))
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	var all strings.Builder
	buf := make([]byte, 512)
	for {
		n, err := resp.Body.Read(buf)
		if all.Write(buf[:n]); first != nil && n > 0 {
			close(first)
			first = nil
		}
		if err != nil {
			return all.String()
		}
	}
}

// TestClientLeavesThreeWays: at each stage of a hand-over, the client's leaving frees both sides.
func TestClientLeavesThreeWays(t *testing.T) {
	slow := func(o *options) { o.decodes, o.answerLen, o.decodeTime = 1, 1000, 5*time.Millisecond }
	try := func(name string, change func(*options), stage func(t *testing.T, f *fleet, first <-chan struct{})) {
		leaves(t, name, func(t *testing.T) time.Duration {
			f := newFleet(t, change)
			ctx, cancel := context.WithCancel(t.Context())
			first := make(chan struct{})
			got := f.start(t, ctx, first, img(picture(t, 30, 30, 196)), text(strings.Repeat("x", 100)))
			stage(t, f, first)
			left := time.Now()
			cancel()
			<-got
			f.left(t)
			within(t, letGo, "the decode worker is idle", func() bool { a := f.decodes[0].announcement(t); return a.Running+a.Waiting == 0 })
			return time.Since(left)
		})
	}
	try("while the prompt is computed", func(o *options) { slow(o); o.prefillTime = 20 * time.Millisecond }, func(t *testing.T, f *fleet, _ <-chan struct{}) {
		eventually(t, "the P/D is at it", func() bool { return f.prefill.announcement(t).Running == 1 })
	})
	try("while memory is asked for", slow, func(t *testing.T, f *fleet, _ <-chan struct{}) {
		hog := must[hogged](t)(f.states[1].Reserve(arenaSize - 64))
		eventually(t, "the state is kept", func() bool { return f.prefill.count(t, "afterimage_prefill_handoff_states", "") == 1 })
		hog.Abort()
	})
	try("while the gateway is told of the state", slow, func(t *testing.T, f *fleet, _ <-chan struct{}) {
		eventually(t, "the state is kept", func() bool { return f.prefill.count(t, "afterimage_prefill_handoff_states", "") == 1 })
	})
	for _, path := range []string{control.PathAdopt, control.PathHandOff} {
		try("at "+path, slow, func(t *testing.T, f *fleet, _ <-chan struct{}) {
			at := f.decodes[0]
			if path == control.PathHandOff {
				at = f.prefill
			}
			arrived := make(chan struct{}, 8)
			at.failOn(path, func(_ http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				readAll(r.Body)
				<-r.Context().Done()
			})
			<-arrived
		})
	}
	try("mid-stream", slow, func(t *testing.T, f *fleet, first <-chan struct{}) { <-first })
}

// TestStatesWaitForMemory: with room for few states, many requests wait in turn, and all are answered.
func TestStatesWaitForMemory(t *testing.T) {
	f := newFleet(t, func(o *options) { o.decodes, o.context, o.stateBytes = 1, 2048, 200<<10 }) // a whole context takes 130 KiB
	done := make(chan string, 12)
	for i := range cap(done) {
		go func() {
			resp, err := f.gateway.Client().Post(f.gateway.URL+control.PathChat, "application/json",
				strings.NewReader(`{"messages":[{"role":"user","content":"`+strings.Repeat("y", 700+i)+`"}],"temperature":0}`))
			if err != nil {
				done <- err.Error()
				return
			}
			defer resp.Body.Close()
			if readAll(resp.Body); resp.StatusCode != 200 {
				done <- resp.Status
				return
			}
			done <- ""
		}()
	}
	for range cap(done) {
		if bad := <-done; bad != "" {
			t.Error(bad)
		}
	}
	f.decodes[0].gives(t, float64(cap(done)))
	eventually(t, "the memory is back", f.free)
}

// TestAdoptRefusesNonsense: a decode worker checks what it is told before it grants memory.
func TestAdoptRefusesNonsense(t *testing.T) {
	f := decodeFleet(t, 1)
	good := control.AdoptRequest{Request: "r", Engine: "modelled device", HandOff: control.HandOff{
		Bytes: 128 + 2*4*control.StateCols, Rows: 2, Logits: 258, State: 640, Cells: 9, Positions: 9, PromptTokens: 9,
	}}
	call := func(method, path string, body any) answer {
		b := must[[]byte](t)(json.Marshal(body))
		req := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), method, f.decodes[0].URL+path, bytes.NewReader(b)))
		return readAnswer(t, must[*http.Response](t)(f.decodes[0].Client().Do(req)))
	}
	for name, change := range map[string]func(*control.AdoptRequest){
		"no name":            func(r *control.AdoptRequest) { r.Request = "" },
		"another engine":     func(r *control.AdoptRequest) { r.Engine = "other" },
		"another vocabulary": func(r *control.AdoptRequest) { r.HandOff.Logits = 257 },
		"negative state":     func(r *control.AdoptRequest) { r.HandOff.State = -1 },
		"huge state":         func(r *control.AdoptRequest) { r.HandOff.State = 1 << 62 },
		"too few rows":       func(r *control.AdoptRequest) { r.HandOff.Rows = 1 },
		"other bytes":        func(r *control.AdoptRequest) { r.HandOff.Bytes++ },
		"no cells":           func(r *control.AdoptRequest) { r.HandOff.Cells = 0 },
		"too many cells":     func(r *control.AdoptRequest) { r.HandOff.Cells = 2048 },
		"positions":          func(r *control.AdoptRequest) { r.HandOff.Positions = 10 },
		"no prompt":          func(r *control.AdoptRequest) { r.HandOff.PromptTokens = 0 },
	} {
		bad := good
		change(&bad)
		if got := call(http.MethodPost, control.PathAdopt, bad); got.status < 400 || got.status >= 500 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	if got := call(http.MethodPost, control.PathAdopt, good); got.status != 200 {
		t.Errorf("good: %d %s", got.status, got.body)
	}
	if got := call(http.MethodPost, control.PathAdopt, good); got.status != 400 {
		t.Errorf("the same name again: %d %s", got.status, got.body)
	}
	if got := call(http.MethodDelete, control.PathAdopt+"/r", nil); got.status != 204 {
		t.Errorf("delete: %d %s", got.status, got.body)
	}
	if got := call(http.MethodPost, control.PathChat, map[string]any{"messages": []any{user(text("hi"))}}); got.status != 503 {
		t.Errorf("an answer without a state: %d %s", got.status, got.body)
	}
	eventually(t, "the memory is back", f.free)
}
