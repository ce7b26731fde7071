// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A gateway that wants a key, or an admin's, is answered by naming the flag; its own words stay.
func TestKeyIsAskedFor(t *testing.T) {
	said := map[int]string{401: "give a key with --api-key", 403: "give an admin's key with --api-key"}
	for status, mend := range said {
		gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"error":{"message":"not with this key","type":"t","param":null,"code":"c"}}`))
		}))
		for _, args := range [][]string{{"ask", "hi"}, {"trace", "0123"}, {"drain", "encoder-0"}, {"top", "--once"}} {
			var out, errs strings.Builder
			p := Program{Args: append(args, "--url", gateway.URL), Stdout: &out, Stderr: &errs}
			got := p.Main(t.Context())
			want := mend
			if args[0] == "top" { // it takes an admin's in any case
				want = "give a key that may look at the fleet with --api-key"
			}
			if got != exitFailure || !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "--url") {
				t.Errorf("%v, answered %d: status %d, without %q:\n%s", args, status, got, want, errs.String())
			}
		}
		gateway.Close()
	}
}
