// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"image/jpeg"
	"image/png"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// jpegPicture returns a picture as a JPEG file.
func jpegPicture(t *testing.T, w, h int) []byte {
	t.Helper()
	m, err := png.Decode(bytes.NewReader(picture(t, w, h, 77)))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// serveFile is a web server of one file.
func serveFile(t *testing.T, file []byte) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(file) }))
	t.Cleanup(s.Close)
	return s
}

func imgAt(url string) any {
	return map[string]any{"type": "image_url", "image_url": map[string]any{"url": url}}
}

// TestFetchedImage: an image by URL is the same image as its bytes.
func TestFetchedImage(t *testing.T) {
	f := newFleet(t, nil)
	file := picture(t, 60, 60, 80)
	web := serveFile(t, file)
	status, _, body := f.post(t, nil, user(imgAt(web.URL+"/a.png"), text("what?"), img(file)))
	if got, want := content(t, status, body), reference(t, nil, turn{file, "what?", file}); got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
	if got := f.encodes(t); got != 1 {
		t.Errorf("%v encodes of one image by URL and by value", got)
	}
}

// TestFetchFaults (I10): the caller's fault, with the part, and no worker asked.
func TestFetchFaults(t *testing.T) {
	f := newFleet(t, nil)
	status := http.StatusNotFound
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer web.Close()
	prepared := f.prefill.watch("/v1/prepare")
	for _, status = range []int{404, 403, 429, 500} {
		got, _, body := f.post(t, nil, user(text("?"), imgAt(web.URL)))
		if e := parseFailure(t, body); got != 400 || e.Param != "messages[0].content[1]" {
			t.Errorf("the host answers %d: %d %+v", status, got, e)
		}
	}
	if n := prepared.Load(); n != 0 {
		t.Errorf("%d prepare calls", n)
	}
}

// TestPrivateAddressesAreDenied: by default, loopback is not fetched from, open port or closed.
func TestPrivateAddressesAreDenied(t *testing.T) {
	f := newFleet(t, func(o *options) { o.denyPrivate = true })
	asked := false
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer web.Close()
	var said []string
	digits := regexp.MustCompile("[0-9]+")
	for _, url := range []string{web.URL, "http://127.0.0.1:1/x", "http://[::1]/x", "http://169.254.169.254/latest"} {
		status, _, body := f.post(t, nil, user(imgAt(url)))
		e := parseFailure(t, body)
		if status != 400 || e.Param != "messages[0].content[0]" || strings.Contains(e.Message, "127.0.0.1") {
			t.Errorf("%s: %d %+v", url, status, e)
		}
		said = append(said, digits.ReplaceAllString(e.Message, "N"))
	}
	if asked {
		t.Error("a loopback server was asked")
	}
	if said[0] != said[1] {
		t.Errorf("an open port reads %q, a closed one %q", said[0], said[1])
	}
}
