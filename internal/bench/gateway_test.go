// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"
)

// TestRateRows: rates are held against peers, and a peer that is not there is said so.
func TestRateRows(t *testing.T) {
	g := DefaultGateway()
	at := map[string]float64{"known": 300, "new": 200, "python": 50, "reverse": 500, "direct": 700}
	rows := g.rateRows(at, map[string]string{"router": "not installed"})
	r := Report{Name: "gateway", Rows: rows}
	if met, checked, missing, worst := r.counts(); met != 2 || checked != 3 || missing != 1 || worst.Peer != "httputil.ReverseProxy" {
		t.Errorf("%d of %d met, %d missing, worst %+v", met, checked, missing, worst)
	}
	if r.ExitCode() != 1 {
		t.Errorf("exit code %d, want 1", r.ExitCode())
	}
	var b bytes.Buffer
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">= 6x", "not installed", "6x", "NO"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

// TestPictureBodies: bodies are JSON of the size that is asked for, fresh ones differ, known ones come again.
func TestPictureBodies(t *testing.T) {
	seen := map[string]bool{}
	for client := range 2 {
		p := newPictures(10000, client, 0)
		for range 3 {
			body := bytes.Join(p.next(), nil)
			if !json.Valid(body) || len(body) < 9990 || len(body) > 10000 || seen[string(body)] {
				t.Errorf("%d bytes, valid %v, seen before %v", len(body), json.Valid(body), seen[string(body)])
			}
			seen[string(body)] = true
		}
	}
	a, b := newPictures(1000, 0, 2), newPictures(1000, 1, 2)
	var bodies []string
	for range 4 {
		bodies = append(bodies, string(bytes.Join(a.next(), nil)))
	}
	if bodies[0] != bodies[2] || bodies[1] != bodies[3] || bodies[0] == bodies[1] || bodies[0] != string(bytes.Join(b.next(), nil)) {
		t.Error("known pictures do not come again")
	}
}

// TestDrain: the end of a body is its end, in whatever pieces it comes.
func TestDrain(t *testing.T) {
	for _, size := range []int{0, 1, tailBytes - 1, tailBytes, tailBytes + 1, 3*tailBytes + 7} {
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(i * 7 / 5)
		}
		for name, r := range map[string]io.Reader{"at once": bytes.NewReader(body), "byte by byte": iotest.OneByteReader(bytes.NewReader(body)),
			"by halves": iotest.HalfReader(bytes.NewReader(body))} {
			n, tail, err := drain(r)
			if want := body[max(0, size-tailBytes):]; n != size || !bytes.Equal(tail, want) || err != nil {
				t.Errorf("%d bytes %s: %d, an end of %d bytes, %v", size, name, n, len(tail), err)
			}
		}
	}
	if _, _, err := drain(iotest.ErrReader(io.ErrUnexpectedEOF)); err != io.ErrUnexpectedEOF {
		t.Errorf("a body that breaks: %v", err)
	}
}

// TestVLLMStub: it takes a picture whole, then by name, and refuses a name that it does not know; held calls wait.
func TestVLLMStub(t *testing.T) {
	s := newVLLMStub()
	e := httptest.NewServer(s.mux(s.encode))
	defer e.Close()
	post := func(body string) (int, string) {
		t.Helper()
		resp, err := http.Post(e.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	name := `{"type":"image_url","image_url":null,"uuid":"u"}`
	if code, said := post(name); code != 400 || !strings.Contains(said, "Cache miss") {
		t.Errorf("an unknown name: %d %s", code, said)
	}
	if code, said := post(`{"image_url":{"url":"` + strings.Repeat("A", 2*tailBytes) + `"},"uuid":"u"}`); code != 200 || !strings.Contains(said, `"u":{"item_indices":[0]`) {
		t.Errorf("a picture: %d %s", code, said)
	}
	if _, err := held(t.Context(), http.MethodPost, e.URL, "?on=1"); err != nil {
		t.Fatal(err)
	}
	done := make(chan int, 1)
	go func() { code, _ := post(name); done <- code }()
	if err := waiting(t.Context(), e.URL, 1); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
		t.Error("a call was not held")
	default:
	}
	if _, err := held(t.Context(), http.MethodPost, e.URL, ""); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code != 200 {
		t.Errorf("a known name: %d", code)
	}
}

// TestRateAndPaced count what is answered, and fail with what is not.
func TestRateAndPaced(t *testing.T) {
	var status atomic.Int64
	status.Store(http.StatusOK)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(int(status.Load()))
	}))
	defer s.Close()
	got, err := rate(t.Context(), s.URL, []*pictures{newPictures(1000, 0, 0), newPictures(1000, 1, 0)}, 50*time.Millisecond)
	if err != nil || got <= 0 {
		t.Errorf("%v requests/s, %v", got, err)
	}
	times, err := paced(t.Context(), s.URL, 500, 40*time.Millisecond)
	if err != nil || len(times) != 20 || slices.Contains(times, 0) {
		t.Errorf("%v, %v", times, err)
	}
	status.Store(http.StatusTeapot)
	if _, err := rate(t.Context(), s.URL, []*pictures{newPictures(1000, 0, 0)}, time.Second); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("got %v", err)
	}
	if _, err := paced(t.Context(), s.URL, 100, time.Second); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("got %v", err)
	}
}
