// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/openai"
)

func TestTimeoutHeader(t *testing.T) {
	f := func(want time.Duration, given ...string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header[HeaderTimeout] = given
		ctx, cancel, err := WithTimeout(r)
		if want == 0 {
			if e := openai.AsError(err); err == nil || e.Status != 400 || e.Param != HeaderTimeout {
				t.Errorf("%q: got %v, want 400 that names the header", given, err)
			}
			return
		}
		if err != nil {
			t.Errorf("%q: %v", given, err)
			return
		}
		defer cancel()
		if end, ok := ctx.Deadline(); !ok || end != time.Now().Add(want) {
			t.Errorf("%q: ends after %v, want %v", given, time.Until(end), want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		f(30*time.Second, "30")
		f(2500*time.Millisecond, "2.5")
		f(500*time.Millisecond, "500ms")
		f(90*time.Second, " 1m30s ")
		f(24*time.Hour, "86400")
		f(time.Millisecond, "1e-3")
		for _, bad := range []string{"", "0", "-1", "0.0", "1 s", "soon", "NaN", "Inf", "-Inf", "86401", "25h", "0x10", "1_0", "1e400", "30\x00", "-5ms", "9999999999999999999999s"} {
			f(0, bad)
		}
		f(0, "1", "2")
	})
}

// The end of a deadline is told as one, and not as that of a call.
func TestTimeoutIsTheClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set(HeaderTimeout, "2")
		ctx, cancel, err := WithTimeout(r)
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
		call := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
		time.Sleep(1499 * time.Millisecond)
		if TellTimeout(call); call.Header.Get(HeaderTimeout) != "501ms" {
			t.Errorf("left: %q", call.Header.Get(HeaderTimeout))
		}
		longer, stop := context.WithTimeout(ctx, time.Minute) // of a call
		defer stop()
		<-longer.Done()
		if e := openai.AsError(context.Cause(longer)); e.Status != 504 || e.Message != "The request took longer than the 2s that its X-Request-Timeout allows." {
			t.Errorf("cause: %v", context.Cause(longer))
		}
		if TellTimeout(call); call.Header.Get(HeaderTimeout) != "1ms" {
			t.Errorf("after the end: %q", call.Header.Get(HeaderTimeout))
		}
		call = httptest.NewRequest(http.MethodPost, "/", nil)
		if TellTimeout(call); call.Header[HeaderTimeout] != nil {
			t.Error("a call without an end says when it ends")
		}
	})
}

// Whatever a client puts there is a time within bounds or a 400 that names the header.
func FuzzTimeout(f *testing.F) {
	for _, s := range []string{"30", "2.5", "500ms", "1m30s", "1e400", "NaN", "-1", "0x1p3", "9999999h", "24h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseTimeout(text)
		if err != nil {
			if e := openai.AsError(err); e.Status != 400 || e.Param != HeaderTimeout {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if d <= 0 || d > maxTimeout {
			t.Errorf("%q is %v", text, d)
		}
	})
}
