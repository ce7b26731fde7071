// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestI09DataURL(t *testing.T) {
	file := append([]byte("\xfb\xff\xfe picture"), bytes.Repeat([]byte{0xff, 0xef, 0xbe, 1}, 60)...)
	std := base64.StdEncoding.EncodeToString(file)
	accept := func(url, wantType string) {
		t.Helper()
		got, mediaType, err := ParseDataURL([]byte(url))
		if err != nil || !bytes.Equal(got, file) || mediaType != wantType {
			t.Errorf("%.60q: %d bytes of type %q, error %v", url, len(got), mediaType, err)
		}
	}
	accept("data:image/png;base64,"+std, "image/png")
	accept("DATA:Image/PNG;BASE64,"+std, "image/png")
	accept("data:image/png;charset=utf-8;base64,"+std, "image/png")
	accept("data:;base64,"+std, "")
	accept("data:image/svg+xml;base64,"+std, "image/svg+xml")
	accept("data:image/x-canon-cr2; name=a ; base64 ,"+std, "image/x-canon-cr2")
	accept("data:image/png;base64,"+base64.URLEncoding.EncodeToString(file), "image/png")
	accept("data:image/png;base64,"+strings.TrimRight(std, "="), "image/png")
	accept("data:image/png;base64,"+base64.RawURLEncoding.EncodeToString(file), "image/png")
	var lines strings.Builder
	for i := range len(std) {
		if i%76 == 0 {
			lines.WriteString("\r\n\t ")
		}
		lines.WriteByte(std[i])
	}
	accept("data:image/png;base64,"+lines.String()+"\n", "image/png")
	accept("data:image/png;base64,"+strings.NewReplacer("+", "%2B", "/", "%2f", "=", "%3D").Replace(std), "image/png")
	var escaped strings.Builder
	for _, c := range file {
		const hex = "0123456789abcdef"
		escaped.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
	accept("data:image/png,"+escaped.String(), "image/png")

	reject := func(url string, kind Kind, msg string) {
		t.Helper()
		_, _, err := ParseDataURL([]byte(url))
		wantKind(t, err, kind)
		if !strings.Contains(err.Error(), msg) {
			t.Errorf("%.60q: message %q, want it to say %q", url, err, msg)
		}
	}
	const notURL = "The URL must be either a HTTP, data or file URL."
	reject(std, ErrURL, notURL)
	reject("ftp://host/x.png", ErrURL, notURL)
	reject("", ErrURL, notURL)
	reject("data:image/png;base64"+std, ErrURL, "comma")
	reject("data:", ErrURL, "comma")
	reject("data:"+strings.Repeat("x", 5000)+","+std, ErrURL, "comma")
	reject("data:image/png;base64,data:image/png;base64,"+std, ErrURL, "another data URL")
	reject("data:,data:image/png;base64,"+std, ErrURL, "another data URL")
	reject("data:image/png;base64,", ErrEmpty, "empty")
	reject("data:image/png;base64, \r\n", ErrEmpty, "empty")
	reject("data:,", ErrEmpty, "empty")
	reject("data:image/png;base64,@@@@", ErrURL, "Non-base64 digit found")
	reject("data:image/png;base64,AAAA\x00AAAA", ErrURL, "Non-base64 digit found")
	reject("data:image/png;base64,AAAAA", ErrURL, "padding")
	reject("data:image/png;base64,A===", ErrURL, "padding")
	reject("data:image/png;base64,====", ErrURL, "padding")
	reject("data:image/png;base64,AA===", ErrURL, "padding")
	reject("data:image/png;base64,AA==AAAA", ErrURL, "after padding")
	reject("data:image/png;base64,AAA%4", ErrURL, "percent")
	reject("data:,%zz", ErrURL, "percent")
	reject("data:,%", ErrURL, "percent")
	reject("data:,%%%%", ErrURL, "percent")
}

func TestBase64EqualsTheStandardLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		raw := make([]byte, n)
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			got, err := decodeBase64([]byte(enc.EncodeToString(raw)))
			if err != nil || !bytes.Equal(got, raw) {
				t.Fatalf("%d bytes: got %d bytes, error %v", n, len(got), err)
			}
		}
	}
}

func TestParseDataURLDecodesInPlace(t *testing.T) {
	clean := []byte("data:image/png;base64," + base64.StdEncoding.EncodeToString(make([]byte, 100000)))
	url := make([]byte, len(clean))
	n := testing.AllocsPerRun(10, func() {
		copy(url, clean)
		data, _, err := ParseDataURL(url)
		if err != nil || len(data) != 100000 || &data[0] != &url[len("data:image/png;base64,")] {
			t.Fatalf("%d bytes, error %v; want 100000 in the URL's own memory", len(data), err)
		}
	})
	if n > 2 { // the media type and its lower-case form
		t.Errorf("%.0f allocations", n)
	}
}

func BenchmarkParseDataURL(b *testing.B) {
	clean := []byte("data:image/png;base64," + base64.StdEncoding.EncodeToString(make([]byte, 1<<20)))
	url := make([]byte, len(clean))
	b.SetBytes(int64(len(url)))
	for b.Loop() {
		copy(url, clean)
		if _, _, err := ParseDataURL(url); err != nil {
			b.Fatal(err)
		}
	}
}
