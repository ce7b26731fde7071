// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"afterimage/internal/media"
	"afterimage/internal/openai"
)

// fetchAtOnce bounds the media of one request that are fetched side by side.
const fetchAtOnce = 4

// load names the media of a request. Those behind URLs are fetched, so that they are named by what they hold and
// no worker is sent to a place that a client chose.
func (f *Front) load(ctx context.Context, req *request) error {
	if len(req.env.Media) == 0 {
		return nil
	}
	req.media = make([]medium, len(req.env.Media))
	if err := f.reserve(ctx, req); err != nil {
		return err
	}
	var used atomic.Int64
	grp, ctx := errgroup.WithContext(ctx)
	grp.SetLimit(fetchAtOnce)
	for i := range req.env.Media {
		p, m := &req.env.Media[i], &req.media[i]
		if !f.toFetch(p) {
			f.name(req.env, i, m)
			continue
		}
		grp.Go(func() error { return f.fetch(ctx, req, p, m, &used) })
	}
	if err := grp.Wait(); err != nil {
		return err
	}
	total := used.Load()
	req.fetched.Keep(total)
	for i := range req.media {
		p := &req.env.Media[i]
		if req.media[i].url == nil && media.IsDataURL(p.URL) {
			total += int64(len(p.URL) / 4 * 3)
		}
		req.media[i].keepApart(req.salt, p.UUID)
	}
	req.pass.Images(total)
	return nil
}

// fetch gets what is behind a part's URL into m, and adds its bytes to those used of the request.
func (f *Front) fetch(ctx context.Context, req *request, p *openai.Medium, m *medium, used *atomic.Int64) error {
	v, err := f.cfg.Revisits.Get(ctx, media.Want{URL: string(p.URL), Scope: req.apart, MaxBytes: f.cfg.MaxFetchBytes - used.Load(), Bytes: true})
	file := v.Body
	if err == nil && used.Add(int64(len(file))) > f.cfg.MaxFetchBytes {
		err = fmt.Errorf("the media of this request are larger than %d bytes in all", f.cfg.MaxFetchBytes)
	}
	if err != nil {
		return partError(p.Path, err)
	}
	m.url, m.file = dataURL(file), file
	if !f.cfg.NoRewrite {
		m.content = nameOf(m.url[1], m.url[2])
		m.uuid = p.UUID
		if m.uuid == "" {
			m.uuid = m.content
		}
	}
	return nil
}

// toFetch says whether this side gets what is behind a part's URL.
func (f *Front) toFetch(p *openai.Medium) bool {
	return len(p.URL) > 0 && !media.IsDataURL(p.URL) && f.cfg.Fetcher != nil
}

// reserve waits for room for all that has to be fetched, at once, so that no two requests wait for what the other
// has.
func (f *Front) reserve(ctx context.Context, req *request) (err error) {
	if !slices.ContainsFunc(req.env.Media, func(p openai.Medium) bool { return f.toFetch(&p) }) {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	req.fetched, err = f.cfg.Fetched.Reserve(wait, f.cfg.MaxFetchBytes)
	if err != nil && ctx.Err() == nil {
		err = openai.Unavailable(retryAfter, "This gateway holds as many fetched media as it can; there was no room for those of this request within %v.", fetchWait)
	}
	return err
}

// fetchWait bounds the wait for room.
const fetchWait = 10 * time.Second

// keepApart gives the medium names that no request of another salt has, so that workers, which know media by
// their names, take it for no other's: neither a client's own name nor the same picture reaches across.
func (m *medium) keepApart(salt []byte, client string) {
	if len(salt) == 0 {
		return
	}
	name := func(s string) string {
		if s == "" {
			return ""
		}
		return nameOf(salt, []byte(s))
	}
	m.uuid, m.content = name(m.uuid), name(m.content)
	m.cover = cmp.Or(m.uuid, name(client))
}

// name names media part i by what the client sent.
func (f *Front) name(e *openai.Envelope, i int, m *medium) {
	p := &e.Media[i]
	if f.cfg.NoRewrite {
		m.uuid = ""
		return
	}
	m.uuid = p.UUID
	if m.uuid != "" {
		return // whether it holds data or not: the client's name is what goes to the workers
	}
	m.uuid = f.names.contentUUID(e, i)
	if media.IsDataURL(p.URL) {
		m.content = m.uuid // only a data URL is what it names
	}
}

// dataURL returns a file as a data URL in a JSON string: quote, head, base64, quote.
func dataURL(file []byte) [][]byte {
	kind, _, _ := strings.Cut(http.DetectContentType(file), ";")
	text := make([]byte, base64.StdEncoding.EncodedLen(len(file)))
	base64.StdEncoding.Encode(text, file)
	return [][]byte{[]byte(`"`), []byte("data:" + kind + ";base64,"), text, []byte(`"`)}
}

// partError says which part of the request could not be had.
func partError(path string, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, media.ErrClosed):
		return openai.Unavailable(retryAfter, "this gateway is stopping")
	}
	return openai.BadRequest(path, "%v (%s)", err, path)
}
