// SPDX-License-Identifier: Apache-2.0

package system

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/gateway"
)

// soon is what "well under a second" allows on a busy machine.
const soon = 9 * time.Second

// expect posts pictures and checks the status, that the answer is quick, and that nothing is left behind.
func (f *fleet) expect(t *testing.T, name string, status int, words string, files ...[]byte) {
	t.Helper()
	var parts []any
	for _, file := range files {
		parts = append(parts, img(file))
	}
	start := time.Now()
	got, header, body := f.post(t, nil, user(append(parts, text("what?"))...))
	if took := time.Since(start); took > soon {
		t.Errorf("%s: took %v", name, took)
	}
	if got != status || !strings.Contains(body, words) {
		t.Errorf("%s: got %d %s, want %d with %q", name, got, body, status, words)
	}
	if retry := header.Get("Retry-After"); (got == 503 || got == 429) != (retry != "") {
		t.Errorf("%s: %d with Retry-After %q", name, got, retry)
	}
	eventually(t, name+": the memory is back", f.free)
}

// TestEncodeFaults (T03, T04): an Encoder that fails costs nothing while there is another; without one
// the client learns so at once, and is never answered without its pictures.
func TestEncodeFaults(t *testing.T) {
	next := uint8(90)
	f := newFleet(t, nil)
	for name, c := range map[string]struct {
		fault http.HandlerFunc
		words string
	}{
		"404":      {http.NotFound, "404"},
		"500":      {answers(500, `{"error":{"message":"out of memory","type":"InternalServerError"}}`), "out of memory"},
		"503":      {answers(503, `{"error":{"message":"busy","type":"x"}}`), "busy"},
		"not JSON": {answers(200, `<html>`), "encoder-"},
		"no items": {answers(200, `{"encoder":"encoder-0","items":[]}`), "encoder-"},
		"hangs up": {hangUp, ""},
		"an image fails": {func(w http.ResponseWriter, r *http.Request) {
			req, _, _ := control.ReadEncodeBody(r.Body, control.EncodeLimits{Items: 9, ImageBytes: 1 << 20, TotalBytes: 1 << 20})
			items := strings.Repeat(`{"error":{"status":503,"type":"x","message":"engine lost"}},`, len(req.Items))
			answers(200, `{"encoder":"x","items":[`+items[:len(items)-1]+`]}`)(w, r)
		}, "engine lost"},
	} {
		three := func() [][]byte {
			next += 3
			return [][]byte{picture(t, 60, 60, next), picture(t, 61, 60, next+1), picture(t, 62, 60, next+2)}
		}
		f.encoders[0].failOn(control.PathEncode, c.fault)
		f.expect(t, name+" on one", 200, "choices", three()...)
		f.encoders[1].failOn(control.PathEncode, c.fault)
		status := 503
		if name == "500" {
			status = 500
		}
		f.expect(t, name+" on both", status, c.words, three()...)
		for _, e := range f.encoders {
			e.heal()
		}
		eventually(t, name+": both are back", func() bool { return f.allUp(t) })
		f.expect(t, name+" healed", 200, "choices", three()...)
	}
	if got := f.gateway.count(t, "afterimage_gateway_repairs_total", ""); got == 0 {
		t.Error("no repair was counted")
	}
}

// TestEncodersFaultIsNotTheCallers: whose fault it is decides the status.
func TestEncodersFaultIsNotTheCallers(t *testing.T) {
	f := newFleet(t, nil)
	say := func(status int, kind string) http.HandlerFunc {
		return answers(200, fmt.Sprintf(`{"encoder":"x","items":[{"error":{"status":%d,"type":%q,"message":"so it is"}}]}`, status, kind))
	}
	for _, e := range f.encoders {
		e.failOn(control.PathEncode, say(400, "BadRequestError"))
	}
	status, _, body := f.post(t, nil, user(text("?"), img(picture(t, 30, 30, 120))))
	if e := parseFailure(t, body); status != 400 || e.Param != "messages[0].content[1]" || !strings.Contains(e.Message, "so it is") {
		t.Errorf("the caller's: %d %+v", status, e)
	}
	before := f.gateway.count(t, "afterimage_gateway_repairs_total", "")
	if before != 0 {
		t.Errorf("%v repairs of a caller's fault", before)
	}
	for _, e := range f.encoders {
		e.failOn(control.PathEncode, say(429, "RateLimitError"))
	}
	f.expect(t, "both busy", 429, "so it is", picture(t, 30, 30, 120))
}

// TestQueueFull: more images than the queue takes are refused with 429 while no other Encoder is there.
func TestQueueFull(t *testing.T) {
	f := newFleet(t, func(o *options) { o.encoders, o.maxQueue, o.encodeTime = 1, 1, 400*time.Millisecond })
	e := f.encoders[0]
	done := make(chan int, 2)
	send := func(seed uint8) {
		status, _, _ := f.post(t, nil, user(img(picture(t, 30, 30, seed))))
		done <- status
	}
	go send(130)
	eventually(t, "the first is in the engine", func() bool { return e.announcement(t).Running == 1 })
	go send(131)
	eventually(t, "the second waits", func() bool { return e.announcement(t).Waiting == 1 })
	status, header, body := f.post(t, nil, user(img(picture(t, 30, 30, 132))))
	if e := parseFailure(t, body); status != 429 || header.Get("Retry-After") == "" || !strings.Contains(e.Message, "too many images") {
		t.Errorf("the third: %d, Retry-After %q, %+v", status, header.Get("Retry-After"), e)
	}
	if a, b := <-done, <-done; a != 200 || b != 200 {
		t.Errorf("the others: %d, %d", a, b)
	}
	if got := e.count(t, "afterimage_encoder_refused_total", ""); got == 0 {
		t.Error("nothing was counted as refused")
	}
}

// TestForcedEncoder: a name that does not exist is the caller's fault, one that is down is not.
func TestForcedEncoder(t *testing.T) {
	f := newFleet(t, nil)
	image := fmt.Sprintf(`[{"type":"image_url","image_url":{"url":%q}}]`, dataURL(picture(t, 30, 30, 133)))
	send := func(name, content string) (int, string) {
		body := `{"messages":[{"role":"user","content":` + content + `}]}`
		req := must[*http.Request](t)(http.NewRequest(http.MethodPost, f.gateway.URL+control.PathChat, strings.NewReader(body)))
		req.Header.Set(control.HeaderEncoder, name)
		return f.do(t, req)
	}
	ask := func(name string) (int, string) { return send(name, image) }
	for _, name := range []string{"encoder-7", "2", "-1", "http://10.0.0.1"} {
		for _, content := range []string{image, `"no picture"`} {
			if status, body := send(name, content); status != 400 || !strings.Contains(body, "encoder-0") {
				t.Errorf("%s, %.20s: %d %s", name, content, status, body)
			}
		}
	}
	if status, body := send("encoder-1", `"no picture"`); status != 200 {
		t.Errorf("a name that is there, without images: %d %s", status, body)
	}
	f.encoders[1].die()
	eventually(t, "it is seen to be down", func() bool { return !f.allUp(t) })
	if status, body := ask("encoder-1"); status != 503 {
		t.Errorf("down: %d %s", status, body)
	}
	if status, body := ask("0"); status != 200 {
		t.Errorf("up: %d %s", status, body)
	}
}

// once runs f for the first request to path only.
func (n *node) once(path string, f hook) {
	var done atomic.Bool
	n.fail(func(w http.ResponseWriter, r *http.Request) bool {
		return r.URL.Path == path && done.CompareAndSwap(false, true) && f(w, r)
	})
}

// TestPrefillFaults: whatever a P/D loses before its first byte is prepared and encoded again.
func TestPrefillFaults(t *testing.T) {
	f := newFleet(t, nil)
	seed := uint8(140)
	for name, fault := range map[string]func(){
		"a name that was never prepared": func() {
			f.prefill.once(control.PathChat, func(_ http.ResponseWriter, r *http.Request) bool {
				r.Header.Set(control.HeaderPrepare, "another")
				return false
			})
		},
		"restart between prepare and chat": func() {
			f.prefill.once(control.PathChat, func(http.ResponseWriter, *http.Request) bool { f.restartPrefill(); return false })
		},
		"409 that names an item": func() {
			f.prefill.once(control.PathChat, func(w http.ResponseWriter, r *http.Request) bool {
				answers(409, `{"missing":[0]}`)(w, r)
				return true
			})
		},
	} {
		seed++
		fault()
		file := picture(t, 60, 60, seed)
		a, err := f.client.Ask(t.Context(), question(file), nil)
		if err != nil || a.Text != reference(t, nil, turn{file, "what?"}) || a.Attempts != 2 {
			t.Errorf("%s: %d attempts, %q, %v", name, a.Attempts, a.Text, err)
		}
		f.prefill.heal()
		eventually(t, name+": the memory is back", f.free)
	}
}

// TestRepairIsForced: an image that was missing is encoded afresh, though P/D, the Store and the Encoder each have
// an embedding of it, and the fresh one takes their place.
func TestRepairIsForced(t *testing.T) {
	f := newFleet(t, func(o *options) { o.encoders = 1 })
	file := picture(t, 60, 60, 139)
	want := f.ask(t, "", file).Text
	f.published(t, 0)
	kept := func() *arena.Buf {
		buf, _, ok := f.residents.Get(f.key(t, file))
		if !ok {
			t.Fatal("P/D keeps nothing")
		}
		return buf
	}
	old := kept()
	defer old.Release()
	f.prefill.once(control.PathChat, func(w http.ResponseWriter, r *http.Request) bool {
		answers(409, `{"missing":[0]}`)(w, r)
		return true
	})
	a := f.ask(t, "", file)
	if n := f.encodes(t); a.Text != want || a.Attempts != 2 || a.Items[0].Source != control.SourceEncoded || n != 2 {
		t.Errorf("%d attempts, %s, %v encodes, %q, want %q", a.Attempts, road(a), n, a.Text, want)
	}
	fresh := kept()
	defer fresh.Release()
	if fresh == old {
		t.Error("P/D keeps what it was told not to use")
	}
}

// TestPrefillNeverHasIt: what stays missing ends in a 503 after the repairs.
func TestPrefillNeverHasIt(t *testing.T) {
	f := newFleet(t, nil)
	f.prefill.failOn(control.PathChat, answers(409, `{"missing":[0]}`))
	f.expect(t, "always missing", 503, "3 attempts", picture(t, 30, 30, 150))
	if got := f.gateway.count(t, "afterimage_gateway_repairs_total", ""); got != 2 {
		t.Errorf("%v repairs, want 2", got)
	}
	f.prefill.die()
	f.expect(t, "P/D dead", 503, "", picture(t, 30, 30, 150))
	eventually(t, "it is seen to be down", func() bool { return f.ready() != nil })
	f.expect(t, "P/D known to be dead", 503, "no P/D is ready", picture(t, 30, 30, 150))
	if status, header, _ := f.post(t, nil, user(text("hi"))); status != 503 || header.Get("Retry-After") == "" {
		t.Errorf("text: %d, Retry-After %q", status, header.Get("Retry-After"))
	}
}

// TestLateEmbedding: an embedding that does not come in time is missing, and made again.
func TestLateEmbedding(t *testing.T) {
	f := newFleet(t, func(o *options) { o.encoders, o.itemWait = 1, 50*time.Millisecond })
	stuck := make(chan struct{})
	f.encoders[0].once(control.PathEncode, func(_ http.ResponseWriter, r *http.Request) bool {
		readAll(r.Body)
		<-r.Context().Done() // the gateway gives up when the P/D does
		close(stuck)
		return true
	})
	file := picture(t, 60, 60, 151)
	a, err := f.client.Ask(t.Context(), question(file), nil)
	if err != nil || a.Attempts != 2 || a.Text != reference(t, nil, turn{file, "what?"}) {
		t.Errorf("%d attempts, %q, %v", a.Attempts, a.Text, err)
	}
	<-stuck
	if got := f.prefill.count(t, "afterimage_prefill_missing_items_total", ""); got != 1 {
		t.Errorf("%v missing items, want 1", got)
	}
}

// TestWorkersThatHang: a worker that takes a call and never answers is given up after the time for it.
func TestWorkersThatHang(t *testing.T) {
	f := newFleet(t, func(o *options) {
		o.gateway = func(c *gateway.Config) {
			c.PrepareTimeout, c.EncodeTimeout, c.ProbeTimeout = 60*time.Millisecond, 60*time.Millisecond, time.Second
		}
	})
	hang := func(_ http.ResponseWriter, r *http.Request) bool {
		readAll(r.Body)
		<-r.Context().Done()
		return true
	}
	seed := uint8(160)
	for _, c := range []struct {
		n    *node
		path string
	}{
		{f.encoders[0].node, control.PathGeometry}, {f.prefill, control.PathPrepare},
		{f.encoders[0].node, control.PathEncode}, {f.encoders[1].node, control.PathEncode},
	} {
		seed++
		c.n.once(c.path, hang)
		status, _, body := f.post(t, nil, user(img(picture(t, 28*int(seed-150), 30, seed))))
		if status != 200 && status != 503 {
			t.Errorf("%s hangs: %d %s", c.path, status, body)
		}
		c.n.heal()
		eventually(t, "all are up, the memory is back", func() bool { return f.allUp(t) && f.free() })
	}
}

// TestEncoderDiesAfterItDelivered: once the P/D answers, it has the picture, and the stream goes on.
func TestEncoderDiesAfterItDelivered(t *testing.T) {
	f := newFleet(t, func(o *options) { o.encoders, o.decodeTime, o.answerLen = 1, 10*time.Millisecond, 60 })
	e := f.encoders[0]
	hold := make(chan struct{})
	e.fail(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != control.PathEncode {
			return false
		}
		e.role.Load().ServeHTTP(&mute{ResponseWriter: w}, r) // delivers, and says nothing
		<-hold
		panic(http.ErrAbortHandler)
	})
	file := picture(t, 60, 60, 170)
	pieces := 0
	a, err := f.client.Ask(t.Context(), question(file), func(string) {
		if pieces++; pieces == 2 {
			close(hold)
		}
	})
	long := func(o *options) { o.answerLen = 60 }
	if err != nil || a.Text != reference(t, long, turn{file, "what?"}) || a.Attempts != 1 {
		t.Errorf("%d attempts, %q, %v", a.Attempts, a.Text, err)
	}
}
