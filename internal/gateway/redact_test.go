// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"

	"afterimage/internal/openai"
)

func TestRedact(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		e := &openai.Error{Status: http.StatusServiceUnavailable, Message: in}
		if got := redact(e).Message; got != want || e.Message != in {
			t.Errorf("got %q, want %q; the error itself: %q", got, want, e.Message)
		}
	}
	f("dial http://10.0.0.7:8100/v1/encode: no", "dial [address] no")
	f("read tcp 10.0.0.8:1->10.0.0.7:8100: reset", "read tcp [address]->[address]: reset")
	f("writer [fe80::1%eth0]:80 left; [::1]:9 too", "writer [address] left; [address] too")
	f("lookup e.svc.local:8100, localhost:5", "lookup [address], [address]")
	f("images [0 12] could not be delivered to prefill-0 in 3 attempts", "images [0 12] could not be delivered to prefill-0 in 3 attempts")
	f("encoder-0: engine 0.2.0-x86_64 took 1.5s: 12:30", "encoder-0: engine 0.2.0-x86_64 took 1.5s: 12:30")
	if e := openai.BadRequest("", "http://10.0.0.1/x.png is no image"); redact(e) != e {
		t.Error("the caller's own words were changed")
	}
}

// TestClientsSeeNoAddresses: whatever the way in which an address gets into an error.
func TestClientsSeeNoAddresses(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 8100}
	reset := &net.OpError{Op: "read", Net: "tcp", Source: at, Addr: at, Err: errors.New("reset")}
	body := openai.Error{Status: 503, Message: "delivery: dial 10.0.0.7:8100: refused"}
	nameless := &snapshot{Encoders: []worker{{URL: "http://10.0.0.7:8100", Why: "not probed yet"}}}
	for name, err := range map[string]error{
		"broken":      &brokenError{worker: "e", err: plainError(reset)},
		"broken raw":  &brokenError{worker: "e", err: reset},
		"undelivered": &undeliveredError{&workerError{status: 503, shaped: true, body: body}},
		"refused":     retryElsewhere(testWorker, answered(testWorker, 502, []byte("proxy at http://10.0.0.7:8100 is down"))),
		"nobody":      unavailableWorker(nameless.need("Encoder", nameless.Encoders)),
		"no name":     checkForced(nameless, "encoder-9"),
		"deadline":    fmt.Errorf("10.0.0.7:8100: %w", context.DeadlineExceeded),
		"ours":        errors.New("BUG at 10.0.0.7:8100"),
		"gone":        fmt.Errorf("%w: 10.0.0.7:8100", context.Canceled),
	} {
		tr := newTraces(1).begin("t", "r")
		tr.end(503, err)
		e := openai.AsError(clientError(err))
		for _, text := range []string{e.Message, tr.copy().Error} {
			if text == "" || addresses.MatchString(text) {
				t.Errorf("%s: a client sees %q", name, text)
			}
		}
	}
	if err := answered(testWorker, 429, []byte(`{"error":{"message":"busy at 10.0.0.7:1"}}`)); addresses.MatchString(openai.AsError(clientError(err)).Message) {
		t.Errorf("a client sees %v", clientError(err))
	}
}
