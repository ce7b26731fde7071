// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestRequestID(t *testing.T) {
	for in, want := range map[string]string{"a-1": "a-1", "": "own", "a b": "own", "a\nb": "own", "a/b": "own", `a"b`: "own", "é": "own"} {
		if got := RequestID(in, "own"); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// FuzzRequestID: whatever a client calls its request, what goes out is one line of a header, and comes in again as it is.
func FuzzRequestID(f *testing.F) {
	for _, s := range []string{"a", "a\r\nX: y", "\x00", "é", "a b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id := RequestID(s, "own")
		req := httptest.NewRequest(http.MethodPost, "http://x/", nil)
		req.Header.Set("X-Request-Id", id)
		if _, err := requestHead(req); err != nil || !validHeader(id) {
			t.Fatalf("%q becomes %q, which cannot be sent: %v", s, id, err)
		}
		if again := RequestID(id, "other"); again != id {
			t.Fatalf("%q becomes %q, then %q", s, id, again)
		}
	})
}
