// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/bench"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// suspicious is an Encoder that recomputes the identifier of every image that it gets. Now and then it
// answers before it has read the image, fails, or hangs up, so that calls end in every way.
type suspicious struct {
	inner   http.Handler
	whole   atomic.Int64 // images that were read and checked
	foreign atomic.Int64 // images that were not what their identifier says
}

func (s *suspicious) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != control.PathEncode {
		s.inner.ServeHTTP(w, r)
		return
	}
	switch rand.IntN(8) {
	case 0:
		w.WriteHeader(http.StatusServiceUnavailable) // the image is unread
		return
	case 1:
		panic(http.ErrAbortHandler)
	case 2:
		io.CopyN(io.Discard, r.Body, 100_000)
		panic(http.ErrAbortHandler)
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	req, images, err := control.ReadEncodeBody(bytes.NewReader(raw),
		control.EncodeLimits{Items: 8, ImageBytes: 8 << 20, TotalBytes: 8 << 20})
	if err != nil {
		s.foreign.Add(1)
		return
	}
	for i, it := range req.Items {
		rules := embedding.Processing{Background: embedding.DefaultBackground}
		if embedding.NewIdentifier(embedding.DigestOf(images[i]), rules, false, nil) != it.Identifier {
			s.foreign.Add(1)
		}
		s.whole.Add(1)
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	s.inner.ServeHTTP(w, r)
}

// Many requests at once, of which some are cut off at any point, never send one's image as another's:
// the memory that they lie in is used again.
func TestImagesOfRequestsNeverMix(t *testing.T) {
	small, err := bench.Noise(10_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	enc := &suspicious{inner: bench.StubEncoder()}
	url := startGateway(t, enc, bench.StubPrefill())
	var wg sync.WaitGroup
	for client := range 8 {
		wg.Go(func() {
			for i := range 30 {
				// A header is read no further than the picture; what follows makes the file unlike any other.
				tail := bytes.Repeat([]byte{byte(client), byte(i), 1}, 60_000)
				image := append(bytes.Clone(small), tail...)
				ctx, cancel := context.WithCancel(t.Context())
				if i%4 == 0 {
					time.AfterFunc(time.Duration(rand.IntN(4000))*time.Microsecond, cancel)
				}
				if err := post(ctx, url, bench.ImageRequest("", image)); err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if enc.foreign.Load() != 0 || enc.whole.Load() < 50 {
		t.Errorf("of %d images %d were not what their identifier says", enc.whole.Load(), enc.foreign.Load())
	}
}

// post sends a request and reads its answer. A 503, after repairs ran out, is fine.
func post(ctx context.Context, url string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+control.PathChat, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		err = errors.New(resp.Status + ": " + string(answer))
	}
	return err
}
