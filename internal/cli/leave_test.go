// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestDrainRefuses: what is wrong with a drain call is said in the shape of the API, and nobody drains.
func TestDrainRefuses(t *testing.T) {
	d := &departure{asked: make(chan time.Duration, 1)}
	f := func(body string, status int, want string) {
		t.Helper()
		w := httptest.NewRecorder()
		d.serveDrain(w, httptest.NewRequest(http.MethodPost, "/v1/drain", strings.NewReader(body)))
		if w.Code != status || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %d %s, want %d with %s", body, w.Code, w.Body, status, want)
		}
	}
	f(`{"timeout_ms":-5}`, 400, `"type":"BadRequestError","param":"timeout_ms","code":400`)
	f(`{"timeout_ms":-5}`, 400, `at least 0, got -5`)
	f(`{"timeout_ms":"soon"}`, 400, `"param":null,"code":400`)
	f(`soon`, 400, `{\"timeout_ms\":60000}`)
	if len(d.asked) != 0 {
		t.Error("a refused call makes the worker leave")
	}
	f(``, 202, "")
	if got := <-d.asked; got != drainTimeout {
		t.Errorf("without a body: waits %v, want %v", got, drainTimeout)
	}
	f(`{"timeout_ms":1500}`, 202, "")
	if got := <-d.asked; got != 1500*time.Millisecond {
		t.Errorf("waits %v, want 1.5s", got)
	}
}
