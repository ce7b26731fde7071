// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"container/list"
	"context"
	stdimage "image"
	"image/color"
	"image/jpeg"
	"net/http"
	"sync"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/media"
	"afterimage/internal/openai"
)

// Bounds of thumbnails: of what is kept, of what waits, and of what making one takes.
const (
	thumbnailSide     = 96       // pixels of the longer side
	thumbnailBytes    = 16 << 10 // most that one takes; larger ones are not kept
	maxThumbnails     = 256      // kept, those not used for longest leave
	maxThumbnailJobs  = 32       // pictures that wait
	maxThumbnailFiles = 32 << 20 // bytes of their files
	thumbnailPixels   = 12e6     // larger pictures have none
	thumbnailDecode   = 128 << 20
	thumbnailTime     = 5 * time.Second // to decode one
)

// thumbnails makes small pictures of what requests ask about, one at a time and beside all requests, and keeps the
// latest in memory, nowhere else. What there is no room for goes without. A nil one makes none. Methods may be
// called from any goroutine.
type thumbnails struct {
	jobs chan thumbnailJob // never full: offer counts

	mu      sync.Mutex // guards what follows
	made    map[embedding.Identifier]*list.Element
	recent  list.List // of *thumbnail, the latest used in front
	pending map[embedding.Identifier]bool
	waiting int // bytes of files in jobs
}

type thumbnail struct {
	id   embedding.Identifier
	jpeg []byte
}

type thumbnailJob struct {
	id   embedding.Identifier
	file []byte // a copy: that of the request goes with it
}

func newThumbnails() *thumbnails {
	return &thumbnails{
		jobs: make(chan thumbnailJob, maxThumbnailJobs), made: map[embedding.Identifier]*list.Element{}, pending: map[embedding.Identifier]bool{},
	}
}

// offer has thumbnails made of images that have none, if there is room. It never waits.
func (t *thumbnails) offer(images []*image) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range images {
		if el := t.made[m.id]; el != nil {
			t.recent.MoveToFront(el)
			continue
		}
		if len(m.file) == 0 || t.pending[m.id] || len(t.pending) >= maxThumbnailJobs || t.waiting+len(m.file) > maxThumbnailFiles {
			continue
		}
		t.pending[m.id] = true
		t.waiting += len(m.file)
		t.jobs <- thumbnailJob{m.id, bytes.Clone(m.file)}
	}
}

// run makes thumbnails until ctx ends.
func (t *thumbnails) run(ctx context.Context) {
	for {
		select {
		case job := <-t.jobs:
			jpeg := makeThumbnail(ctx, job.file, thumbnailPixels)
			t.mu.Lock()
			delete(t.pending, job.id)
			t.waiting -= len(job.file)
			if jpeg != nil {
				t.keepLocked(&thumbnail{job.id, jpeg})
			}
			t.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

func (t *thumbnails) keepLocked(n *thumbnail) {
	t.made[n.id] = t.recent.PushFront(n)
	if t.recent.Len() > maxThumbnails {
		last := t.recent.Remove(t.recent.Back()).(*thumbnail)
		delete(t.made, last.id)
	}
}

// get returns the JPEG of an image, nil if there is none.
func (t *thumbnails) get(id embedding.Identifier) []byte {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	el := t.made[id]
	if el == nil {
		return nil
	}
	t.recent.MoveToFront(el)
	return el.Value.(*thumbnail).jpeg
}

// makeThumbnail returns a JPEG of an image file of at most maxPixels, upright and on white; nil where that takes too
// much, or where the file cannot be decoded, which the request learns of its Encoder.
func makeThumbnail(ctx context.Context, file []byte, maxPixels int) []byte {
	ctx, cancel := context.WithTimeout(ctx, thumbnailTime)
	defer cancel()
	limits := media.DefaultLimits()
	limits.MaxPixels, limits.DecodeBudgetBytes = maxPixels, thumbnailDecode
	px, err := media.Decode(ctx, file, embedding.Processing{Background: [3]uint8{255, 255, 255}}, limits)
	if err != nil {
		return nil
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, shrink(px), &jpeg.Options{Quality: 75}); err != nil || b.Len() > thumbnailBytes {
		return nil
	}
	return b.Bytes()
}

// shrink averages the pixels that fall on each of the result, whose longer side is thumbnailSide; what is smaller
// stays as it is.
func shrink(px media.Pixels) *stdimage.RGBA {
	w, h := px.Width, px.Height
	if longer := max(w, h); longer > thumbnailSide {
		w, h = max(1, w*thumbnailSide/longer), max(1, h*thumbnailSide/longer)
	}
	dst := stdimage.NewRGBA(stdimage.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			r, g, b := mean(px, x*px.Width/w, y*px.Height/h, (x+1)*px.Width/w, (y+1)*px.Height/h)
			dst.SetRGBA(x, y, color.RGBA{r, g, b, 255})
		}
	}
	return dst
}

// mean is the colour of a part of px: columns from x0 to x1, rows from y0 to y1.
func mean(px media.Pixels, x0, y0, x1, y1 int) (r, g, b uint8) {
	var sum [3]int
	for y := y0; y < y1; y++ {
		row := px.RGB[3*(y*px.Width+x0) : 3*(y*px.Width+x1)]
		for i := 0; i < len(row); i += 3 {
			sum[0], sum[1], sum[2] = sum[0]+int(row[i]), sum[1]+int(row[i+1]), sum[2]+int(row[i+2])
		}
	}
	n := max(1, (x1-x0)*(y1-y0))
	return uint8(sum[0] / n), uint8(sum[1] / n), uint8(sum[2] / n)
}

// serveThumbnail answers GET /v1/thumbnails/{identifier}.
func (g *Gateway) serveThumbnail(w http.ResponseWriter, r *http.Request) {
	jpeg := g.thumbnails.get(embedding.Identifier(r.PathValue("identifier")))
	if jpeg == nil {
		openai.WriteError(w, &openai.Error{Status: http.StatusNotFound, Type: "NotFoundError", Param: "identifier", Message: "there is no thumbnail of this image"})
		return
	}
	h := w.Header()
	h.Set("Content-Type", "image/jpeg")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(jpeg) // a viewer that has gone is no concern
}
