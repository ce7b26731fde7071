// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"encoding/base64"
	"errors"
	"image"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"afterimage/internal/embedding"
)

// fuzzLimits keep one input cheap.
var fuzzLimits = Limits{MaxBytes: 1 << 20, MaxPixels: 1 << 18}

func seed(f *testing.F) {
	for _, name := range pictures(f) {
		f.Add(load(f, name))
	}
	for _, data := range bombs() {
		f.Add(data)
	}
}

// FuzzInspect checks that the own header readers agree with those of the decoders.
func FuzzInspect(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		info, err := Inspect(data, fuzzLimits)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%v is no *Error", err)
			}
			return
		}
		if info.Width <= 0 || info.Height <= 0 || info.Width*info.Height > fuzzLimits.MaxPixels {
			t.Fatalf("accepted %+v", info)
		}
		if info.Format == "webp" {
			return // the decoder is given a file made from the checked frame
		}
		if turned(info.Orientation) {
			info.Width, info.Height = info.Height, info.Width
		}
		c, _, err := image.DecodeConfig(bytes.NewReader(data))
		if err == nil && (c.Width != info.Width || c.Height != info.Height) {
			t.Fatalf("the decoder reads %d x %d, Inspect %d x %d", c.Width, c.Height, info.Width, info.Height)
		}
	})
}

// FuzzDecode checks sizes, and that the background shows through only where Alpha says so.
func FuzzDecode(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		px, err := Decode(t.Context(), data, white, fuzzLimits)
		if err != nil {
			return
		}
		info, err := Inspect(data, fuzzLimits)
		if err != nil || px.Width != info.Width || px.Height != info.Height || len(px.RGB) != 3*px.Width*px.Height {
			t.Fatalf("decoded %d x %d, Inspect says %+v, %v", px.Width, px.Height, info, err)
		}
		black, err := Decode(t.Context(), data, embedding.Processing{}, fuzzLimits)
		if err != nil || !info.Alpha && !bytes.Equal(px.RGB, black.RGB) {
			t.Fatalf("the background shows through an opaque picture (%v)", err)
		}
	})
}

// FuzzParseDataURL checks that what the standard library accepts is accepted and equal.
func FuzzParseDataURL(f *testing.F) {
	for _, s := range []string{"data:image/png;base64,AAAA", "DATA:;base64,AA==", "data:,a%20b", "data:image/png;base64,A A\r\n-_"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, url []byte) {
		data, _, err := ParseDataURL(bytes.Clone(url))
		if err == nil && len(data) == 0 {
			t.Fatal("no bytes and no error")
		}
		if len(data) > len(url) {
			t.Fatalf("%d bytes from a URL of %d", len(data), len(url))
		}
		want, stdErr := base64.StdEncoding.DecodeString(string(url))
		if got, err := decodeBase64(bytes.Clone(url)); stdErr == nil && (err != nil || !bytes.Equal(got, want)) {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	})
}

// What a server gave to ask with can be asked with: it is a valid header, strong, and never from an answer that is
// not to be kept.
func FuzzValidator(f *testing.F) {
	f.Add(`"v1"`, longAgo, "max-age=1", "Accept")
	f.Add(`W/"v1"`, longAgo, "no-store", "*")
	f.Fuzz(func(t *testing.T, tag, modified, control, vary string) {
		h := http.Header{"Etag": {tag}, "Last-Modified": {modified}, "Date": {"Tue, 03 Jan 2006 15:04:05 GMT"}, "Cache-Control": {control}, "Vary": {vary}}
		if tag == "" {
			h.Del("Etag")
		}
		v := validatorOf(h)
		if v.zero() {
			return
		}
		req := httptest.NewRequest(http.MethodGet, "http://h/", nil)
		v.ask(req)
		if err := req.Write(io.Discard); err != nil || len(req.Header) != 1 {
			t.Errorf("%+v makes %v, %v", v, req.Header, err)
		}
		if strings.HasPrefix(v.etag, "W") || v.etag != "" && v.modified != "" || control == "no-store" || control == "private" || vary == "*" || !v.confirms(h) {
			t.Errorf("%q, %q, %q, %q give %+v", tag, modified, control, vary, v)
		}
	})
}
