// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"afterimage/internal/embedding"
	"afterimage/internal/media"
	"afterimage/internal/openai"
)

// fetch gets an image of at most what is left for this request. Fetches side by side may each take that much before
// the last of them is refused.
func (g *Gateway) fetch(ctx context.Context, w media.Want, left *allowance) (*image, error) {
	rest := left.rest()
	if rest <= 0 {
		return nil, left.refusal()
	}
	w.MaxBytes = rest
	m, err := g.visit(ctx, w)
	if errors.Is(err, media.ErrTooLarge) && rest < g.cfg.Limits.MaxBytes {
		err = left.refusal()
	}
	return m, err
}

// visit gets the image behind a URL.
func (g *Gateway) visit(ctx context.Context, w media.Want) (*image, error) {
	w.Judge = func(file []byte) (media.Known, error) {
		info, err := media.Inspect(file, g.cfg.Limits)
		return media.Known{Digest: embedding.DigestOf(file), Info: info}, err
	}
	v, err := g.cfg.Revisits.Get(ctx, w)
	if err != nil {
		return nil, err
	}
	return &image{file: v.Body, size: v.Size, url: w.URL, how: v.How, info: v.Info, digest: v.Digest}, nil
}

// errChanged: what is behind a URL is not what it was said to be when the request came. The request knows it now.
var errChanged = errors.New("an image has changed while its request was in work")

// fill gets the files of those images of req which are known without, as far as which says so. It returns errChanged
// if another file was there: then req has it in the place of the first, and its names of images mean nothing any more.
func (g *Gateway) fill(ctx context.Context, req *request, which func(i int) bool) error {
	fresh := make([]*image, len(req.images))
	grp, ctx := errgroup.WithContext(ctx)
	grp.SetLimit(fetchAtOnce)
	for i, m := range req.images {
		if m.file != nil || !which(i) {
			continue
		}
		grp.Go(func() (err error) {
			// No more than its part of the memory that was reserved.
			fresh[i], err = g.visit(ctx, media.Want{URL: m.url, Scope: req.salt, MaxBytes: int64(m.size), Bytes: true, Again: true})
			if errors.Is(err, media.ErrTooLarge) {
				err = openai.Unavailable(retryAfter, "the image has grown while its request was in work; send the request again")
			}
			if err != nil {
				err = partError(req.scan.Media[m.parts[0]], err)
			}
			return err
		})
	}
	if err := grp.Wait(); err != nil {
		return err
	}
	changed := false
	for i, f := range fresh {
		if f != nil {
			changed = changed || f.digest != req.images[i].digest
			f.parts = req.images[i].parts
			req.images[i] = f
		}
	}
	if changed {
		req.mingle()
		return errChanged
	}
	return nil
}

// mingle finds again which images of a request are the same, in images that no call of an earlier attempt reads.
func (req *request) mingle() {
	loaded := make([]*image, len(req.uses))
	for i, u := range req.uses {
		m := *req.images[u]
		m.parts = nil
		loaded[i] = &m
	}
	req.images, req.uses = distinct(loaded)
	req.blocks = blocks(req)
}

// errFetched: an Encoder has to see images that were known without their files. The request has them now, and begins
// anew: nobody's web server decides for how long it holds memory of a P/D.
var errFetched = errors.New("an image had to be fetched for an Encoder")

// withoutFiles returns the images of orders whose files are not here.
func (req *request) withoutFiles(orders []order) map[int]bool {
	lacking := map[int]bool{}
	for _, o := range orders {
		if req.images[o.image].file == nil {
			lacking[o.image] = true
		}
	}
	return lacking
}

// fetchFirst gets the files of the images that lack theirs. It never returns nil.
func (g *Gateway) fetchFirst(ctx context.Context, req *request, lacking map[int]bool) error {
	if err := g.fill(ctx, req, func(i int) bool { return lacking[i] }); err != nil {
		return err
	}
	return errFetched
}
