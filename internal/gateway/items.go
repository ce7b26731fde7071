// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/media"
	"afterimage/internal/openai"
)

// image is one distinct picture of a request; the same file twice is one image with two parts.
type image struct {
	parts  []int     // media parts that show it, in prompt order
	file   []byte    // nil while it is known without its bytes; see fill
	size   int       // of the file
	url    string    // that it was fetched from; "" if it came with the request
	how    media.How // of a URL
	info   media.Info
	digest embedding.Digest

	// Set by named, for the namespace of the attempt.
	id   embedding.Identifier
	key  embedding.Key
	geo  control.Geometry
	want embedding.Contract
	held bool // the Store is thought to have it
}

// fetchAtOnce bounds the media of one request that are fetched or decoded side by side.
const fetchAtOnce = 4

// loadImages gets the bytes of every media part and reads their headers. uses says which image
// stands at each part.
func (g *Gateway) loadImages(ctx context.Context, req *request) (images []*image, uses []int, err error) {
	parts := req.scan.Media
	if i := slices.IndexFunc(parts, func(p openai.MediaPart) bool { return p.UUIDOnly }); i >= 0 {
		return nil, nil, openai.CacheMiss(i) // nothing is kept under a client's name here
	}
	// Room for all is reserved at once, so that no two requests wait for what the other has.
	if req.fetched, err = g.reserve(ctx, parts); err != nil {
		return nil, nil, err
	}
	loaded := make([]*image, len(parts))
	left := &allowance{total: g.cfg.MaxRequestImageBytes}
	needed := g.fleet.snapshot().namesByBytes()
	grp, ctx := errgroup.WithContext(ctx)
	grp.SetLimit(fetchAtOnce)
	for i := range parts {
		grp.Go(func() error {
			m, err := g.loadImage(ctx, parts[i], req.salt, left, needed)
			if err != nil {
				return partError(parts[i], err)
			}
			loaded[i] = m
			return nil
		})
	}
	if err := grp.Wait(); err != nil {
		return nil, nil, err
	}
	req.fetched.Keep(fetchedBytes(loaded))
	images, uses = distinct(loaded)
	return images, uses, nil
}

// distinct returns the distinct images of all parts, and which stands at each.
func distinct(loaded []*image) (images []*image, uses []int) {
	at := map[embedding.Digest]int{}
	for i, m := range loaded {
		j, ok := at[m.digest]
		if !ok {
			j = len(images)
			at[m.digest] = j
			images = append(images, m)
		}
		images[j].parts = append(images[j].parts, i)
		uses = append(uses, j)
	}
	return images, uses
}

// reserve waits for room for the files that have to be fetched; nil if there are none.
func (g *Gateway) reserve(ctx context.Context, parts []openai.MediaPart) (*media.Part, error) {
	n := int64(0)
	for _, p := range parts {
		if r, ok := p.Tap.(*media.Reception); !(ok && r.Took()) && !media.IsDataURL(p.URL) {
			n++
		}
	}
	if n == 0 {
		return nil, nil
	}
	wait, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	part, err := g.cfg.Fetched.Reserve(wait, min(n*g.cfg.Limits.MaxBytes, g.cfg.MaxRequestImageBytes))
	if err != nil && ctx.Err() == nil {
		err = openai.Unavailable(retryAfter, "This gateway holds as many fetched images as it can; there was no room for those of this request within %v.", fetchWait)
	}
	return part, err
}

// fetchWait bounds the wait for room.
const fetchWait = 10 * time.Second

// fetchedBytes sums up what was fetched.
func fetchedBytes(images []*image) (n int64) {
	for _, m := range images {
		if m.url != "" {
			n += int64(m.size)
		}
	}
	return n
}

// loadImage gets and inspects the file of one part. One behind a URL may be known without its bytes, unless they are
// needed.
func (g *Gateway) loadImage(ctx context.Context, p openai.MediaPart, salt []byte, left *allowance, needed bool) (*image, error) {
	m := &image{}
	var err error
	if r, ok := p.Tap.(*media.Reception); ok && r.Took() {
		m.file, m.digest, err = r.File()
	} else if media.IsDataURL(p.URL) {
		if int64(len(p.URL)/4*3) > g.cfg.Limits.MaxBytes+1024 {
			return nil, openai.BadRequest("", "the image is larger than %d bytes", g.cfg.Limits.MaxBytes)
		}
		m.file, _, err = media.ParseDataURL(p.URL)
	} else if m, err = g.fetch(ctx, media.Want{URL: string(p.URL), Scope: salt, Bytes: needed}, left); err == nil {
		return m, left.take(m.size)
	}
	if err == nil {
		err = left.take(len(m.file))
	}
	if err != nil {
		return nil, err
	}
	if m.info, err = media.Inspect(m.file, g.cfg.Limits); err != nil {
		return nil, err
	}
	if m.digest == (embedding.Digest{}) {
		m.digest = embedding.DigestOf(m.file)
	}
	m.size = len(m.file)
	return m, nil
}

// allowance bounds the files of one request together. It may be used from several goroutines.
type allowance struct {
	total int64
	used  atomic.Int64
}

func (a *allowance) rest() int64 { return a.total - a.used.Load() }

func (a *allowance) take(n int) error {
	if a.used.Add(int64(n)) > a.total {
		return a.refusal()
	}
	return nil
}

func (a *allowance) refusal() error {
	return openai.BadRequest("", "the images of this request are larger than %d bytes in all; send fewer or smaller images", a.total)
}

// partError says which part of the request an error is about. What goes wrong with a media part is the
// caller's fault, or that of a host the caller named, unless this side ended it.
func partError(p openai.MediaPart, err error) error {
	e := &openai.Error{Status: http.StatusBadRequest, Type: openai.TypeBadRequest, Message: err.Error()}
	var own *openai.Error
	var enc *control.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, media.ErrClosed):
		return openai.Unavailable(retryAfter, "this gateway is stopping")
	case errors.As(err, &own):
		*e = *own
	case errors.As(err, &enc):
		e.Status, e.Type = enc.Status, enc.Type
	}
	e.Message = fmt.Sprintf("%s (%s)", e.Message, p.Path)
	e.Param = p.Path
	return e
}

// named returns req as one attempt sees it: every image has its identifier, key and contract in the namespace of
// Encoder e. It changes nothing of req, which calls of an earlier attempt may still read.
func (g *Gateway) named(ctx context.Context, e worker, req *request) (*request, error) {
	sizes := make([]control.Size, len(req.images))
	for i, m := range req.images {
		sizes[i].Width, sizes[i].Height = m.info.Size(*e.Seen.Processing)
	}
	geo, err := g.geometries(ctx, e, sizes)
	if err != nil {
		return nil, err
	}
	own := *req
	own.images = make([]*image, len(req.images))
	for i, of := range req.images {
		m := *of
		m.geo = geo[i]
		if e.Seen.VLLM != nil { // vLLM has no salt
			m.id = e.Seen.VLLM.Identifier(m.file, m.info.RGB) // its bytes were filled in
		} else {
			m.id = embedding.NewIdentifier(m.digest, *e.Seen.Processing, m.info.Alpha, req.salt)
		}
		m.key = e.Seen.Namespace.Key(m.id)
		m.held = g.stored.has(m.key)
		m.want = embedding.Contract{Rows: geo[i].Rows, Cols: e.Seen.Cols, DType: e.Seen.DType}
		own.images[i] = &m
	}
	return &own, nil
}
