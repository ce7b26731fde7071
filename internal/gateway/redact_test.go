// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"afterimage/internal/control"
	"afterimage/internal/openai"
	"afterimage/internal/proxy"
)

// TestClientsSeeNoAddresses: whatever the way in which an address gets into an error.
// /readyz is open to everybody: why a gateway is not ready names no address.
func TestReadyNamesNoAddress(t *testing.T) {
	f := &fleet{state: snapshot{Prefills: []worker{{URL: "http://10.9.8.7:8200", Why: notProbed}}}}
	g := &Gateway{fleet: f}
	for range 2 {
		if err := g.Ready(); err == nil || proxy.HasAddress(err.Error()) {
			t.Errorf("ready: %v", err)
		}
		f.state.Prefills[0].Why = "dial tcp 10.9.8.7:8200: connection refused"
	}
}

func TestClientsSeeNoAddresses(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 8100}
	reset := &net.OpError{Op: "read", Net: "tcp", Source: at, Addr: at, Err: errors.New("reset")}
	body := openai.Error{Status: 503, Message: "delivery: dial 10.0.0.7:8100: refused"}
	nameless := &snapshot{Encoders: []worker{{URL: "http://10.0.0.7:8100", Why: "not probed yet"}}}
	for name, err := range map[string]error{
		"broken":      &brokenError{worker: "e", err: proxy.Plain(reset)},
		"broken raw":  &brokenError{worker: "e", err: reset},
		"undelivered": &undeliveredError{&workerError{status: 503, shaped: true, body: body}},
		"refused":     retryElsewhere(testWorker, answered(testWorker, 502, []byte("proxy at http://10.0.0.7:8100 is down"))),
		"nobody":      unavailableWorker(nameless.need("Encoder", nameless.Encoders)),
		"no name":     forced{"encoder-9"}.check(nameless, 1),
		"deadline":    fmt.Errorf("10.0.0.7:8100: %w", context.DeadlineExceeded),
		"ours":        errors.New("BUG at 10.0.0.7:8100"),
		"gone":        fmt.Errorf("%w: 10.0.0.7:8100", context.Canceled),
	} {
		tr := newTraces(1).begin("t", "r", "")
		tr.end(503, err)
		e := openai.AsError(clientError(err))
		for _, text := range []string{e.Message, tr.copy().Error} {
			if text == "" || proxy.HasAddress(text) {
				t.Errorf("%s: a client sees %q", name, text)
			}
		}
	}
	if err := answered(testWorker, 429, []byte(`{"error":{"message":"busy at 10.0.0.7:1"}}`)); proxy.HasAddress(openai.AsError(clientError(err)).Message) {
		t.Errorf("a client sees %v", clientError(err))
	}
}

// TestLongNamesComeBackCut: a worker's name that a client asks for, and what a worker says, are no longer in an answer
// or a log than a person reads; what there is instead still is.
func TestLongNamesComeBackCut(t *testing.T) {
	snap := twoPrefills()
	long := strings.Repeat("x", 5000)
	e := openai.AsError(checkForced(control.HeaderPrefill, "P/D", snap.Prefills, long))
	if e.Status != 400 || len(e.Message) > 400 || !strings.Contains(e.Message, `x..."`) || !strings.Contains(e.Message, "b") {
		t.Errorf("%d bytes: %.500s", len(e.Message), e.Message)
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	r.SetPathValue("trace", long)
	(&Gateway{traces: newTraces(1)}).serveTrace(w, r)
	if w.Code != 404 || w.Body.Len() > 400 || !strings.Contains(w.Body.String(), "no trace x") {
		t.Errorf("%d, %d bytes: %.500s", w.Code, w.Body.Len(), w.Body)
	}
	said := openai.AsError(clientError(answered(testWorker, 400, []byte(`{"error":{"message":"`+strings.Repeat(long, 100)+`"}}`))))
	if said.Status != 400 || len(said.Message) > 5000 || !strings.HasPrefix(said.Message, "xxx") {
		t.Errorf("%d, %d bytes", said.Status, len(said.Message))
	}
}
