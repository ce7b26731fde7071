// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/openai"
	"afterimage/internal/proxy"
)

// While a call runs, it and its body have a share each. A call that ends well gives both back; one that
// fails does not, since net/http may still be reading.
func TestEncodeCallHasShares(t *testing.T) {
	req := &request{id: "r", buf: proxy.NewBuffer(1), images: []*image{{id: "i", file: []byte("image"), parts: []int{0}}},
		scan: &openai.Request{Media: make([]openai.MediaPart, 1)}}
	status := http.StatusOK
	during := make(chan int32, 1)
	encoder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		during <- int32(req.buf.Shares())
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		io.WriteString(w, `{"encoder":"e","items":[{"source":"encoded","delivered":true}]}`)
	}))
	defer encoder.Close()
	g := New(Config{Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	defer g.Close()
	req.trace = g.traces.begin("", req.id, "")

	f := func(answer int, ok bool, want int32) {
		t.Helper()
		status = answer
		err := g.encodeOn(t.Context(), worker{URL: encoder.URL}, req, []order{{}}, false)
		if (err == nil) != ok {
			t.Fatalf("status %d: error %v", answer, err)
		}
		if got := <-during; got < 2 { // the body may have been closed by then
			t.Errorf("status %d: %d shares during the call, want at least 2: request and call", answer, got)
		}
		for deadline := time.Now().Add(10 * time.Second); int32(req.buf.Shares()) != want; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("status %d: %d shares after the call, want %d", answer, int32(req.buf.Shares()), want)
			}
		}
	}
	f(http.StatusOK, true, 1)
	f(http.StatusServiceUnavailable, false, 2)
}
