// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/media"
)

// What a server says is unchanged goes to workers as it did before, from memory; where its bytes are not held, it is
// transferred.
func TestUnchangedMediaAreNotTransferred(t *testing.T) {
	for bytes, want := range map[int64]int32{1 << 20: 1, 0: 2} {
		var sent atomic.Int32
		host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			if r.Header.Get("If-None-Match") == `"1"` {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			sent.Add(1)
			_, _ = w.Write([]byte("\x89PNG\r\n\x1a\nfirst"))
		}))
		t.Cleanup(host.Close)
		fetcher := media.NewFetcher(media.FetcherConfig{AllowPrivate: true, Timeout: time.Minute})
		t.Cleanup(fetcher.Close)
		f := newStatic(t, 1, false, says(200, completion), func(c *Config) {
			c.Fetcher, c.Revisits = fetcher, media.NewRevisits(fetcher, 9, bytes)
		})
		for range 2 {
			works(t, f.post(t, "", chat(text, remote(host.URL))))
		}
		e, d := f.e[0].calls(), f.d[0].calls()
		if len(e) != 2 || e[0].body != e[1].body {
			t.Errorf("%d bytes held: %d encode calls, or different ones", bytes, len(e))
		}
		if len(d) != 2 || d[0].chat.parts(t)[1].UUID == "" || d[0].chat.parts(t)[1].UUID != d[1].chat.parts(t)[1].UUID {
			t.Errorf("%d bytes held: %d decode calls, or different media", bytes, len(d))
		}
		if n := sent.Load(); n != want {
			t.Errorf("%d bytes held: %d bodies sent, want %d", bytes, n, want)
		}
	}
}
