// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"afterimage/internal/tenant"
)

// silent is an answer that nobody reads.
type silent struct{ h http.Header }

func (s *silent) Header() http.Header         { return s.h }
func (s *silent) Write(b []byte) (int, error) { return len(b), nil }
func (s *silent) WriteHeader(int)             {}

// BenchmarkDoor is what the door adds to a request: without anything, with places alone as by default, and with
// keys, limits and places.
func BenchmarkDoor(b *testing.B) {
	set := keys(b, "[default]\nrequests_per_second = 1e9\nburst = 1000000000\nconcurrent_requests = 100\n")
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+chatPath, func(_ http.ResponseWriter, r *http.Request) {
		if leave, err := From(r.Context()).Enter(r.Context(), Text, 0); err == nil {
			leave()
		}
	})
	for name, h := range map[string]http.Handler{
		"none": mux, "open": New(Config{}).Wrap(mux), "places": New(Config{MaxText: 10, MaxImages: 10, MaxQueued: 10}).Wrap(mux),
		"keys": New(Config{Keys: func() *tenant.Set { return set }, MaxText: 10, MaxImages: 10, MaxQueued: 10}).Wrap(mux),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			w := &silent{http.Header{}}
			for b.Loop() {
				r := httptest.NewRequest("POST", chatPath, nil)
				r.Header["Authorization"] = []string{"Bearer " + secrets.acme}
				h.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkFind looks a key up among many.
func BenchmarkFind(b *testing.B) {
	var text strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&text, "[[keys]]\ntenant = \"t%d\"\nhash = %q\n", i, tenant.HashOf(fmt.Sprint("key", i)))
	}
	b.Run("parse", func(b *testing.B) {
		for b.Loop() {
			if _, err := tenant.Parse([]byte(text.String()), nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	set, err := tenant.Parse([]byte(text.String()), nil)
	if err != nil {
		b.Fatal(err)
	}
	for name, key := range map[string]string{"known": "key77777", "unknown": "key7777x"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_ = set.Find(key)
			}
		})
	}
}
