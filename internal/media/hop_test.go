// SPDX-License-Identifier: Apache-2.0

package media

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"afterimage/internal/embedding"
)

// A body that comes after "unchanged", which has none, is not taken for the next answer; without a sign of one the
// connection is kept.
func TestUnchangedWithBody(t *testing.T) {
	f := func(header, sends, want string) {
		t.Helper()
		var peers sync.WaitGroup
		t.Cleanup(peers.Wait) // after the connections are closed
		o := newOrigin(t, 9, 0)
		get := func(how How, file string) {
			t.Helper()
			v, err := o.get(t.Context(), Want{URL: "/a"})
			if err != nil || v.How != how || v.Digest != embedding.DigestOf([]byte(file)) {
				t.Errorf("%q: got %s of %d bytes, %v; want %s of %q", header, v.How, v.Size, err, how, file)
			}
		}
		o.serve("first", "ETag", `"1"`)
		get(Fetched, "first")
		o.mu.Lock()
		o.answer = func(w http.ResponseWriter, _ *http.Request) {
			nc, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			peers.Go(func() {
				defer nc.Close()
				_, _ = fmt.Fprintf(nc, "HTTP/1.1 304 Not Modified\r\n%s\r\n", header)
				if _, err := http.ReadRequest(rw.Reader); err == nil {
					_, _ = fmt.Fprint(nc, sends)
				}
			})
		}
		o.mu.Unlock()
		get(Revalidated, "first")
		o.serve("elsewhere", "ETag", `"2"`)
		get(Fetched, want)
	}
	const next = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkept"
	f("", next, "kept")
	f("Content-Length: 0\r\n", next, "kept")
	f("Content-Length: 5\r\n", "first"+next, "elsewhere")
	f("Transfer-Encoding: chunked\r\n", "5\r\nfirst\r\n0\r\n\r\n"+next, "elsewhere")
	f("Content-Length: 79\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbogus"+next, "elsewhere")
}
