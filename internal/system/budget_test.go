// SPDX-License-Identifier: Apache-2.0

package system

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"afterimage/internal/admit"
	"afterimage/internal/control"
)

// A client that waits so long and no longer: whatever stage the request is in then, it ends with 504, its work
// ends at every worker, and no worker is blamed.
func TestDeadlineOfAClient(t *testing.T) {
	const budget = "300ms"
	for name, hold := range map[string]string{"prepare": control.PathPrepare, "encode": control.PathEncode, "chat": control.PathChat} {
		f := newFleet(t, func(o *options) { o.door = &admit.Config{} })
		told, ended := make(chan string, 10), make(chan struct{}, 10)
		holding := func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != hold {
				return false
			}
			readAll(r.Body)
			told <- r.Header.Get(admit.HeaderTimeout)
			<-r.Context().Done()
			ended <- struct{}{}
			return true
		}
		f.prefill.fail(holding)
		for _, e := range f.encoders {
			e.fail(holding)
		}
		body := must[[]byte](t)(json.Marshal(map[string]any{"messages": []any{user(img(picture(t, 60, 60, 5)))}}))
		start := time.Now()
		got := f.send(t, http.MethodPost, control.PathChat, map[string]string{admit.HeaderTimeout: budget}, body)
		if took := time.Since(start); got.status != 504 || !strings.Contains(got.body, "took longer than the 300ms") || took < 300*time.Millisecond || took > 5*time.Second {
			t.Errorf("%s: %d %s after %v", name, got.status, got.body, took)
		}
		if left, err := time.ParseDuration(<-told); err != nil || hold != control.PathEncode && (left > 300*time.Millisecond || left < time.Millisecond) {
			t.Errorf("%s: the worker is told %v, %v", name, left, err) // an encode may be for others too, so it has more time
		}
		<-ended
		if n := len(told); n != 0 {
			t.Errorf("%s: %d further calls", name, n)
		}
		f.prefill.heal()
		for _, e := range f.encoders {
			e.heal()
		}
		if !f.allUp(t) {
			t.Errorf("%s: a worker is blamed: %+v", name, f.seen(t))
		}
		eventually(t, name+": memory is back", f.free)
	}
}

// Workers hold themselves to what they are told, also where the connection stays.
func TestWorkersGiveUpInTime(t *testing.T) {
	f := newFleet(t, func(o *options) {
		o.encodeTime, o.encoders = time.Second, 1
	})
	file := picture(t, 60, 60, 6)
	id := f.key(t, file)
	body, length, err := control.NewEncodeBody(control.EncodeRequest{Request: "r", Items: []control.EncodeItem{
		{Identifier: "a", Bytes: len(file)}, {Identifier: "b", Bytes: len(file)}}}, [][]byte{file, file})
	if err != nil {
		t.Fatal(err)
	}
	call := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodPost, f.encoders[0].URL+control.PathEncode, body))
	call.ContentLength = length
	call.Header.Set(admit.HeaderTimeout, "200ms")
	resp := must[*http.Response](t)(f.encoders[0].Client().Do(call))
	got := readAnswer(t, resp)
	if !strings.Contains(got.body, "deadline") || got.status != 200 {
		t.Errorf("encode of %s: %d %s", id, got.status, got.body)
	}
}

// A stream whose client waits no longer ends in an error frame, and never as if it were whole.
func TestDeadlineWithinAStream(t *testing.T) {
	f := newFleet(t, func(o *options) {
		o.door, o.decodeTime, o.answerLen = &admit.Config{}, 20*time.Millisecond, 500
	})
	got := f.send(t, http.MethodPost, control.PathChat, map[string]string{admit.HeaderTimeout: "0.4"},
		[]byte(`{"messages":[{"role":"user","content":"hi"}],"stream":true,"ignore_eos":true,"max_tokens":500}`))
	if got.status != 200 || !strings.Contains(got.body, `"content"`) || !strings.Contains(got.body, `"error"`) || !strings.HasSuffix(got.body, "data: [DONE]\n\n") || strings.Contains(got.body, `"finish_reason":"length"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	eventually(t, "the P/D has let go", func() bool { return f.prefill.announcement(t).Running == 0 })
}

// The first to ask for a picture may wait for less than those that join it: its end is not theirs.
func TestShortLeaderFailsNobody(t *testing.T) {
	f := newFleet(t, func(o *options) { o.door = &admit.Config{} })
	encodes, release := f.holdEncodes()
	defer release()
	body := must[[]byte](t)(json.Marshal(map[string]any{"messages": []any{user(img(picture(t, 60, 60, 7)))}}))
	ask := func(header map[string]string, want int) (done chan struct{}) {
		done = make(chan struct{})
		go func() {
			defer close(done)
			if got := f.send(t, http.MethodPost, control.PathChat, header, body); got.status != want {
				t.Errorf("%v: %d %s", header, got.status, got.body)
			}
		}()
		return done
	}
	first := ask(map[string]string{admit.HeaderTimeout: "500ms"}, 504)
	eventually(t, "the first leads", func() bool { return encodes.Load() == 1 })
	second := ask(nil, 200)
	eventually(t, "the second has joined", func() bool { return f.gateway.count(t, "afterimage_gateway_joined_total", "") == 1 })
	<-first
	release()
	<-second
	if n := f.encodes(t); n != 1 {
		t.Errorf("%v encodes, want 1", n)
	}
}
