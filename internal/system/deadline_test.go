// SPDX-License-Identifier: Apache-2.0

package system

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/gateway"
)

// writeLimit is the time that these tests give a single write to a client.
const writeLimit = 200 * time.Millisecond

// TestStreamsOutliveTheWriteTimeout (P03): the deadline is one of a write, never of an answer.
func TestStreamsOutliveTheWriteTimeout(t *testing.T) {
	f := newFleet(t, func(o *options) { o.gateway = func(c *gateway.Config) { c.WriteTimeout = writeLimit } })
	const chunks = 12
	f.prefill.failOn(control.PathChat, func(w http.ResponseWriter, r *http.Request) {
		readAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		tick := time.NewTicker(writeLimit / 2) // five deadlines in all
		defer tick.Stop()
		for i := range chunks {
			io.WriteString(w, event(fmt.Sprint(i), "null"))
			http.NewResponseController(w).Flush()
			<-tick.C
		}
		io.WriteString(w, event("", `"stop"`)+"data: [DONE]\n\n")
	})
	status, _, body := f.post(t, map[string]any{"stream": true}, user(text("hi")))
	if status != 200 || strings.Count(body, `"content"`) != chunks+1 || !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("status %d, cut: %s", status, body)
	}
}

// TestStalledReaderIsGivenUp (P03): a client that does not read is cut, and the worker with it.
func TestStalledReaderIsGivenUp(t *testing.T) {
	f := newFleet(t, func(o *options) { o.gateway = func(c *gateway.Config) { c.WriteTimeout = writeLimit } })
	ended := make(chan struct{})
	f.prefill.failOn(control.PathChat, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		readAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		large := event(strings.Repeat("x", 256<<10), "null")
		for r.Context().Err() == nil { // more than any socket buffers
			if _, err := io.WriteString(w, large); err != nil {
				return
			}
		}
	})
	conn, err := net.Dial("tcp", f.gateway.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const body = `{"stream":true,"messages":[{"role":"user","content":"hi"}]}`
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", control.PathChat, len(body), body)
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the worker still writes for a client that does not read")
	}
	eventually(t, "the gateway is done", func() bool {
		return f.gateway.count(t, "afterimage_gateway_requests_running", "") == 0
	})
}
