// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"testing"

	"afterimage/internal/openai"
)

func TestRedact(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		e := &openai.Error{Status: http.StatusServiceUnavailable, Message: in}
		if got := Redact(e).Message; got != want || e.Message != in {
			t.Errorf("got %q, want %q; the error itself: %q", got, want, e.Message)
		}
	}
	f("dial http://10.0.0.7:8100/v1/encode: no", "dial [address] no")
	f("read tcp 10.0.0.8:1->10.0.0.7:8100: reset", "read tcp [address]->[address]: reset")
	f("writer [fe80::1%eth0]:80 left; [::1]:9 too", "writer [address] left; [address] too")
	f("lookup e.svc.local:8100, localhost:5", "lookup [address], [address]")
	f("images [0 12] could not be delivered to prefill-0 in 3 attempts", "images [0 12] could not be delivered to prefill-0 in 3 attempts")
	f("encoder-0: engine 0.2.0-x86_64 took 1.5s: 12:30", "encoder-0: engine 0.2.0-x86_64 took 1.5s: 12:30")
	if e := openai.BadRequest("", "http://10.0.0.1/x.png is no image"); Redact(e) != e {
		t.Error("the caller's own words were changed")
	}
}
