// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"testing"

	"afterimage/internal/control"
)

// TestImagesGoInGroups: the images of a request that belong to one Encoder go to it in calls of at most 16.
func TestImagesGoInGroups(t *testing.T) {
	f := newFleet(t, func(o *options) { o.encoders, o.maxImages = 1, 40 })
	var mu sync.Mutex
	var sizes []int
	f.encoders[0].fail(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != control.PathEncode {
			return false
		}
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return false
		}
		r.Body = io.NopCloser(bytes.NewReader(raw))
		req, _, err := control.ReadEncodeBody(bytes.NewReader(raw), control.EncodeLimits{Items: 64, ImageBytes: 1 << 20, TotalBytes: 64 << 20})
		if err != nil {
			t.Error(err)
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, len(req.Items))
		return false
	})
	var files [][]byte
	for i := range 40 {
		files = append(files, picture(t, 20, 20, uint8(i)))
	}
	if a := f.ask(t, "", files...); len(a.Items) != 40 {
		t.Errorf("%d items", len(a.Items))
	}
	total := 0
	for _, n := range sizes {
		if total += n; n > 16 {
			t.Errorf("a call of %d images", n)
		}
	}
	if total != 40 || len(sizes) != 3 {
		t.Errorf("calls of %v images, want 3 for 40", sizes)
	}
}

// TestTextWaitsForNoEncoder: text is answered while every Encoder stands still, and while there is none.
func TestTextWaitsForNoEncoder(t *testing.T) {
	f := newFleet(t, nil)
	count, release := f.holdEncodes()
	defer release()
	done := make(chan int, 4)
	for i := range 4 {
		go func() {
			status, _, _ := f.post(t, nil, user(text("?"), img(picture(t, 60, 60, uint8(i)))))
			done <- status
		}()
	}
	eventually(t, "the Encoders have work", func() bool { return count.Load() >= 2 })
	for range 5 {
		if status, _, body := f.post(t, nil, user(text("hello"))); status != 200 {
			t.Errorf("text: %d %s", status, body)
		}
	}
	release()
	for range 4 {
		if status := <-done; status != 200 {
			t.Errorf("an image: %d", status)
		}
	}
	for _, e := range f.encoders {
		e.die()
	}
	if status, _, body := f.post(t, nil, user(text("hello"))); status != 200 {
		t.Errorf("text without Encoders: %d %s", status, body)
	}
}
