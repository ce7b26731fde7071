// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestWriteError(t *testing.T) {
	f := func(err error, status int, retry, body string) {
		t.Helper()
		w := httptest.NewRecorder()
		WriteError(w, err)
		h := w.Header()
		if w.Code != status || w.Body.String() != body || h.Get("Retry-After") != retry {
			t.Errorf("got %d, retry %q, %s", w.Code, h.Get("Retry-After"), w.Body)
		}
		if h.Get("Content-Type") != "application/json" || h.Get("Content-Length") != fmt.Sprint(len(body)) {
			t.Errorf("got header %v", h)
		}
	}
	f(fmt.Errorf("gateway: %w", ModelNotFound("a\"b", "m")), 404, "",
		`{"error":{"message":"The model `+"`a\\\"b`"+` does not exist. Valid aliases: m.","type":"NotFoundError","param":"model","code":404}}`)
	f(Unavailable(1500*time.Millisecond, "no encoder is ready"), 503, "2",
		`{"error":{"message":"no encoder is ready","type":"ServiceUnavailableError","param":null,"code":503}}`)
	f(&http.MaxBytesError{Limit: 100}, 413, "",
		`{"error":{"message":"The request body exceeds the limit of 100 bytes.","type":"RequestEntityTooLargeError","param":null,"code":413}}`)
	f(fmt.Errorf("encode: %w", context.DeadlineExceeded), 504, "",
		`{"error":{"message":"The request took longer than its time limit.","type":"GatewayTimeoutError","param":null,"code":504}}`)
	f(errors.New("secret"), 500, "",
		`{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}`)
	f(&Error{Status: 409, Code: 7, Type: "T", Message: "m"}, 409, "", `{"error":{"message":"m","type":"T","param":null,"code":7}}`)
}

func TestGoldenRoutes(t *testing.T) {
	f := func(name string, write func(http.ResponseWriter), status int, allow string) {
		t.Helper()
		w := httptest.NewRecorder()
		write(w)
		_, _, want := goldenResponse(t, name)
		if w.Code != status || w.Body.String() != want || w.Header().Get("Allow") != allow {
			t.Errorf("%s: got %d %s %v", name, w.Code, w.Body, w.Header())
		}
	}
	f("err_not_found", NotFound, 404, "")
	f("err_method", func(w http.ResponseWriter) { MethodNotAllowed(w, "POST") }, 405, "POST")
}

// TestErrorsAreBounded: what a client has written comes back cut, however it came into an error.
func TestErrorsAreBounded(t *testing.T) {
	f := func(err *Error, most int, words string) {
		t.Helper()
		got := string(err.AppendJSON(nil))
		if len(got) > most || !strings.Contains(got, words) || !json.Valid([]byte(got)) {
			t.Errorf("%d bytes, at most %d; want %q in %.200s", len(got), most, words, got)
		}
	}
	long := strings.Repeat("é", 1<<20)
	f(ModelNotFound(long, "m"), 500, "...` does not exist. Valid aliases: m.")
	f(BadRequest(long, "%s", long), maxMessage+maxParam+200, fmt.Sprintf("é... (%d bytes more)", len(long)-maxMessage))
	f(BadRequest("p", "%s", long[:maxMessage]), maxMessage+100, `é","type"`)
	if got := Bounded("a" + long); len(got) > maxMessage+50 || !utf8.ValidString(got) {
		t.Errorf("%d bytes, cut within a character: %q", len(got), got[maxMessage-10:])
	}
}
