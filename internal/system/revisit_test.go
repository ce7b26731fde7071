// SPDX-License-Identifier: Apache-2.0

package system

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/gateway"
	"afterimage/internal/media"
)

// album is a web server of one picture with a tag. It may lie: say that it is unchanged, and send another.
type album struct {
	*httptest.Server
	mu   sync.Mutex // guards what follows
	file []byte
	sent int
	gate chan struct{} // bodies wait for it to be closed; nil for none
}

func newAlbum(t *testing.T, file []byte) *album {
	a := &album{file: file}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		a.mu.Lock()
		a.sent++
		file, gate := a.file, a.gate
		a.mu.Unlock()
		if gate != nil {
			<-gate
		}
		_, _ = w.Write(file)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *album) set(file []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.file = file
}

// hold has bodies wait until the returned function is called, which may be more than once.
func (a *album) hold() (let func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	gate := make(chan struct{})
	a.gate = gate
	return sync.OnceFunc(func() { close(gate) })
}

func (a *album) bodies() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent
}

// revisiting has the gateway remember URLs, with so many bytes of files.
func revisiting(bytes int64) func(*options) {
	return func(o *options) {
		o.gateway = func(c *gateway.Config) { c.Revisits = media.NewRevisits(c.Fetcher, 9, bytes) }
	}
}

// asked posts a request and returns its answer, and how and from where each of its pictures came.
func (f *fleet) asked(t *testing.T, header map[string]string, parts ...any) (string, string) {
	t.Helper()
	got := f.send(t, http.MethodPost, control.PathChat, header, must[[]byte](t)(json.Marshal(map[string]any{"messages": []any{user(parts...)}, "max_tokens": 12})))
	answer := content(t, got.status, got.body)
	told := f.send(t, http.MethodGet, control.PathTraces+"/"+got.header.Get(control.HeaderTrace), header, nil)
	var tr control.Trace
	if err := json.Unmarshal([]byte(told.body), &tr); err != nil {
		t.Fatalf("%d %s", told.status, told.body)
	}
	var came []string
	for _, it := range tr.Items {
		came = append(came, it.Fetch+"/"+string(it.Source))
	}
	return answer, strings.Join(came, " ")
}

// A picture that its server says is unchanged is neither transferred nor encoded again, and the answer is the same;
// another tenant gets it as if nobody had.
func TestRevalidatedImage(t *testing.T) {
	f := newKeyedFleet(t, keyed(t, "", "acme", "zeta"), revisiting(0))
	file := picture(t, 60, 60, 81)
	web := newAlbum(t, file)
	want := reference(t, nil, turn{file, "what?"})
	for i, c := range []struct {
		who, came string
		bodies    int
	}{
		{"acme", "fetched/encoded", 1}, {"acme", "revalidated/resident", 1}, {"zeta", "fetched/encoded", 2}, {"zeta", "revalidated/resident", 2}, {"acme", "revalidated/resident", 2},
	} {
		answer, came := f.asked(t, as(c.who), imgAt(web.URL+"/a.png"), text("what?"))
		if answer != want || came != c.came || web.bodies() != c.bodies {
			t.Errorf("%d: %s gets it %s with %d bodies sent, want %s with %d; answer %q, want %q", i, c.who, came, web.bodies(), c.came, c.bodies, answer, want)
		}
	}
	if n := f.gateway.count(t, "afterimage_gateway_fetch_bytes_total", "revalidated"); n != float64(3*len(file)) {
		t.Errorf("%v bytes were not transferred, says the gateway, want %d", n, 3*len(file))
	}
}

// Where an Encoder has to see the picture after all, its bytes are held, or are transferred then; if they are others
// by now, it is the picture that is there which is answered.
func TestRevalidatedImageIsNeeded(t *testing.T) {
	needy := func(bytes int64) (*fleet, *album, []byte) {
		f := newFleet(t, func(o *options) {
			o.p2p = true
			forgetful(o)
			revisiting(bytes)(o)
		})
		file := picture(t, 90, 90, 82)
		return f, newAlbum(t, file), file
	}
	f, web, _ := needy(1 << 20)
	for i, want := range []string{"fetched/encoded", "revalidated/local"} {
		if _, came := f.asked(t, nil, imgAt(web.URL), text("what?")); came != want || web.bodies() != 1 {
			t.Errorf("%d, with its bytes held: %s, %d bodies sent", i, came, web.bodies())
		}
	}
	f, web, file := needy(0)
	for i, want := range []string{"fetched/encoded", "refetched/local", "refetched/local"} {
		if answer, came := f.asked(t, nil, imgAt(web.URL), text("what?")); came != want || web.bodies() != i+1 || answer != reference(t, nil, turn{file, "what?"}) {
			t.Errorf("%d, without: %s, %d bodies sent, answer %q", i, came, web.bodies(), answer)
		}
	}
	other := picture(t, 56, 56, 83)
	web.set(other)
	answer, came := f.asked(t, nil, imgAt(web.URL), text("and?"), img(other))
	if want := reference(t, nil, turn{other, "and?", other}); answer != want || came != "refetched/encoded refetched/encoded" {
		t.Errorf("another picture: %s, answer %q, want %q", came, answer, want)
	}
	if _, came := f.asked(t, nil, imgAt(web.URL), text("what?")); came != "fetched/local" {
		t.Errorf("the tag is believed again: %s", came)
	}
}

// A web server that says at once that its picture is unchanged, and then takes its time to send it, holds no memory of
// the P/D meanwhile.
func TestRevalidatedImageHoldsNoMemory(t *testing.T) {
	f := newFleet(t, func(o *options) {
		o.p2p = true
		forgetful(o)
		revisiting(0)(o)
	})
	file := picture(t, 90, 90, 88)
	web := newAlbum(t, file)
	f.asked(t, nil, imgAt(web.URL), text("what?"))
	let := web.hold()
	defer let()
	answered := make(chan string, 1)
	go func() {
		_, _, body := f.post(t, nil, user(imgAt(web.URL), text("what?")))
		answered <- body
	}()
	eventually(t, "its body is asked for", func() bool { return web.bodies() == 2 })
	eventually(t, "nothing is granted to it", f.free)
	f.ask(t, "", picture(t, 60, 60, 89))
	let()
	if got, want := content(t, 200, <-answered), reference(t, nil, turn{file, "what?"}); got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
	if n := f.gateway.count(t, "afterimage_gateway_repairs_total", ""); n != 0 {
		t.Errorf("%v repairs", n)
	}
}

// Where pictures are named as vLLM does, their bytes are needed: what is not held is transferred at once.
func TestRevalidatedImageOfVLLMsName(t *testing.T) {
	for bytes, want := range map[int64]string{0: "fetched/local", 1 << 20: "revalidated/local"} {
		f := newFleet(t, func(o *options) {
			o.share = &[]embedding.DType{embedding.Float32}[0]
			forgetful(o)
			revisiting(bytes)(o)
		})
		web := newAlbum(t, picture(t, 56, 56, 86))
		first, _ := f.asked(t, nil, imgAt(web.URL), text("what?"))
		if answer, came := f.asked(t, nil, imgAt(web.URL), text("what?")); came != want || answer != first {
			t.Errorf("%d bytes held: %s, answer %q, want %s and %q", bytes, came, answer, want, first)
		}
	}
}

// A picture that has grown since its server said that it is unchanged has no room: its request is to come again, and
// then gets it.
func TestRevalidatedImageHasGrown(t *testing.T) {
	f := newFleet(t, func(o *options) {
		o.p2p = true
		forgetful(o)
		revisiting(0)(o)
	})
	web := newAlbum(t, picture(t, 56, 56, 84))
	f.asked(t, nil, imgAt(web.URL), text("what?"))
	large := picture(t, 120, 120, 85)
	web.set(large)
	status, header, body := f.post(t, nil, user(imgAt(web.URL), text("what?")))
	if e := parseFailure(t, body); status != 503 || header.Get("Retry-After") == "" || e.Param != "messages[0].content[0]" {
		t.Errorf("%d %v %s", status, header, body)
	}
	if answer, came := f.asked(t, nil, imgAt(web.URL), text("what?")); came != "fetched/encoded" || answer != reference(t, nil, turn{large, "what?"}) {
		t.Errorf("the next: %s, answer %q", came, answer)
	}
	eventually(t, "the memory is back", f.free)
}
