// SPDX-License-Identifier: Apache-2.0

package system

import (
	"net/http"
	"strings"
	"testing"

	"afterimage/internal/control"
)

// TestTraceIsItsClientsOwn: two clients that use one name for their requests find their own trace, under
// the random name that each was told, and none under the name that they chose.
func TestTraceIsItsClientsOwn(t *testing.T) {
	f := newFleet(t, nil)
	get := func(name string) (int, string) {
		return f.do(t, must[*http.Request](t)(http.NewRequest(http.MethodGet, f.gateway.URL+"/v1/traces/"+name, nil)))
	}
	ask := func(body string) string {
		req := must[*http.Request](t)(http.NewRequest(http.MethodPost, f.gateway.URL+control.PathChat, strings.NewReader(body)))
		req.Header.Set(control.HeaderRequestID, "common")
		req.Header.Set(control.HeaderTrace, "chosen")
		resp := must[*http.Response](t)(f.gateway.Client().Do(req))
		defer resp.Body.Close()
		readAll(resp.Body)
		return resp.Header.Get(control.HeaderTrace)
	}
	good, bad := ask(`{"messages":[{"role":"user","content":"hello"}]}`), ask(`{`)
	if status, body := get(good); status != 200 || !strings.Contains(body, `"status":200`) || !strings.Contains(body, `"request":"common"`) {
		t.Errorf("the first: %d %s", status, body)
	}
	if status, body := get(bad); status != 200 || !strings.Contains(body, `"status":400`) {
		t.Errorf("the second: %d %s", status, body)
	}
	for _, name := range []string{"common", "chosen"} {
		if status, body := get(name); status != 404 {
			t.Errorf("under %q: %d %s", name, status, body)
		}
	}
}
