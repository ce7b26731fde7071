// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/control"
	"afterimage/internal/openai"
)

func TestBufferHasRoom(t *testing.T) {
	for _, n := range []int64{0, 1, minPooled - 1, minPooled, minPooled + 1, 1 << 20, 1<<20 + 1, maxPooled, maxPooled + 1} {
		for range 2 { // the second may be one used before
			b := newBuffer(n)
			if len(b.b) != 0 || int64(cap(b.b)) < n {
				t.Errorf("asked for %d: length %d, capacity %d", n, len(b.b), cap(b.b))
			}
			b.b = append(b.b, "left behind"...)
			b.release()
		}
	}
}

// Memory is not handed out again while anyone may read it.
func TestBufferIsNotUsedAgainWhileShared(t *testing.T) {
	b := newBuffer(minPooled)
	memory := unsafe.SliceData(b.b[:1])
	body := b.share(strings.NewReader("image"))
	b.retain() // a call that fails and keeps its share
	b.release()
	handedOut := func() bool {
		for range 20 {
			if unsafe.SliceData(newBuffer(minPooled).b[:1]) == memory {
				return true
			}
		}
		return false
	}
	if handedOut() {
		t.Fatal("memory was used again while its body was open")
	}
	if got, err := io.ReadAll(body); string(got) != "image" || err != nil {
		t.Fatalf("body %q, %v", got, err)
	}
	for range 2 { // net/http may close a body twice; it has one share
		if err := body.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if b.shares.Load() != 1 || handedOut() {
		t.Fatalf("%d shares, want the one of the call that failed", b.shares.Load())
	}
}

func TestBufferReleasedTooOften(t *testing.T) {
	var none *buffer
	none.release()
	b := newBuffer(1)
	b.release()
	defer func() {
		if recover() == nil {
			t.Error("no panic though a share was given back twice")
		}
	}()
	b.release()
}

// While a call runs, it and its body have a share each. A call that ends well gives both back; one that
// fails does not, since net/http may still be reading.
func TestEncodeCallHasShares(t *testing.T) {
	req := &request{id: "r", buf: newBuffer(1), images: []*image{{id: "i", file: []byte("image"), parts: []int{0}}},
		scan: &openai.Request{Media: make([]openai.MediaPart, 1)}}
	status := http.StatusOK
	during := make(chan int32, 1)
	encoder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		during <- req.buf.shares.Load()
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		io.WriteString(w, `{"encoder":"e","items":[{"source":"encoded","delivered":true}]}`)
	}))
	defer encoder.Close()
	g := New(Config{Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	defer g.Close()
	req.trace = g.traces.begin("", req.id)

	f := func(answer int, ok bool, want int32) {
		t.Helper()
		status = answer
		err := g.encodeOn(t.Context(), worker{URL: encoder.URL}, req, []int{0}, make([]control.Grant, 1), false)
		if (err == nil) != ok {
			t.Fatalf("status %d: error %v", answer, err)
		}
		if got := <-during; got < 2 { // the body may have been closed by then
			t.Errorf("status %d: %d shares during the call, want at least 2: request and call", answer, got)
		}
		for deadline := time.Now().Add(10 * time.Second); req.buf.shares.Load() != want; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("status %d: %d shares after the call, want %d", answer, req.buf.shares.Load(), want)
			}
		}
	}
	f(http.StatusOK, true, 1)
	f(http.StatusServiceUnavailable, false, 2)
}
