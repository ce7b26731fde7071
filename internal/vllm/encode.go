// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"afterimage/internal/openai"
	"afterimage/internal/proxy"
	"afterimage/internal/vllm/relay"
)

// grouped puts the media of a request together by Encoder: images that go to one Encoder share calls of at
// most limit (0: any number), every other medium has a call of its own. Media without an Encoder are left out.
func grouped(e *openai.Envelope, to []*entry, limit int) []group {
	var groups []group
	open := map[*entry]int{} // the group that takes more images
	for i, m := range e.Media {
		if to[i] == nil {
			continue
		}
		if m.Kind != "image_url" {
			groups = append(groups, group{encoder: to[i], items: []int{i}})
			continue
		}
		at, ok := open[to[i]]
		if !ok || limit > 0 && len(groups[at].items) >= limit {
			at = len(groups)
			open[to[i]] = at
			groups = append(groups, group{encoder: to[i]})
		}
		groups[at].items = append(groups[at].items, i)
	}
	return groups
}

// encoded is what the Encoders of one attempt said.
type encoded struct {
	reports []report // per media part
	handed  handed
}

// encode has every media part encoded that was not brought, and pushed to consumer unless that is "".
func (f *Front) encode(ctx context.Context, req *request, consumer string, b *relay.Batch) (encoded, error) {
	to, err := f.encoders(req, b)
	if err != nil {
		return encoded{}, err
	}
	groups := grouped(req.env, to, f.cfg.MaxBatch)
	answers := make([][]byte, len(groups))
	calls, ctx := errgroup.WithContext(ctx)
	for n := range groups {
		calls.Go(func() (err error) {
			answers[n], err = f.encodeGroup(ctx, req, &groups[n], consumer)
			return err
		})
	}
	if err := calls.Wait(); err != nil {
		return encoded{}, err
	}
	out := encoded{reports: make([]report, len(req.media))}
	out.reportBrought(b)
	for n, g := range groups {
		if err := f.file(&out, req, g, answers[n], consumer != ""); err != nil {
			return encoded{}, err
		}
	}
	return out, nil
}

// encoders returns the Encoder of each media part, nil for what was brought.
func (f *Front) encoders(req *request, b *relay.Batch) ([]*entry, error) {
	var names []string
	var at []int
	for i := range req.media {
		if !brought(b, i) {
			names, at = append(names, req.name(i)), append(at, i)
		}
	}
	to := make([]*entry, len(req.media))
	if len(at) == 0 {
		return to, nil
	}
	chosen := f.reg.assign(names, f.cfg.Routing, shunned{}, time.Now())
	if chosen == nil {
		return nil, missing(Encode)
	}
	for n, i := range at {
		to[i] = chosen[n]
	}
	return to, nil
}

// encodeGroup makes one encode call, on other Encoders too if it does not come to an answer.
func (f *Front) encodeGroup(ctx context.Context, req *request, g *group, consumer string) ([]byte, error) {
	var avoid shunned
	for n := 0; ; n++ {
		answer, err := f.encodeOn(ctx, req, g, consumer)
		var c *callError
		if err == nil || !errors.As(err, &c) || !c.elsewhere() || n >= f.cfg.Failovers {
			return answer, err
		}
		avoid.add(c)
		next := f.reg.assign([]string{req.name(g.items[0])}, f.cfg.Routing, avoid, time.Now())
		if next == nil {
			return nil, err
		}
		g.encoder = next[0]
		f.metrics.retries.WithLabelValues(string(stageEncode)).Inc()
		f.cfg.Logger.Info("encode elsewhere", "request", req.id, "url", g.encoder.URL, "cause", err)
	}
}

// encodeOn makes one encode call. An Encoder that holds all the images gets their names alone, and the whole
// of them if it turns out that it does not.
func (f *Front) encodeOn(ctx context.Context, req *request, g *group, consumer string) ([]byte, error) {
	url := g.encoder.URL
	short := map[int]bool{}
	for _, i := range g.items {
		if m := req.media[i]; f.cfg.ShortNames && !f.cfg.NoRewrite && m.uuid == m.content && req.env.Media[i].Kind == "image_url" {
			short[i] = f.held.has(url, req.held(i))
		}
	}
	var names []string
	for i, is := range short {
		if is {
			names = append(names, req.held(i))
		}
	}
	answer, err := f.encodeBodyOn(ctx, req, g, consumer, func(i int) bool { return short[i] })
	var c *callError
	if len(names) > 0 && errors.As(err, &c) && c.status != 0 {
		f.held.drop(url, names)
		f.metrics.retries.WithLabelValues("name").Inc()
		clear(short)
		answer, err = f.encodeBodyOn(ctx, req, g, consumer, func(int) bool { return false })
	}
	if err != nil {
		return nil, err
	}
	for _, i := range g.items {
		sent := "whole"
		if short[i] {
			sent = "name"
		} else if m := req.media[i]; m.uuid == m.content {
			f.held.put(url, req.held(i))
		}
		f.metrics.media.WithLabelValues(sent).Inc()
	}
	return answer, nil
}

// encodeBodyOn makes one encode call under fresh transfer ids.
func (f *Front) encodeBodyOn(ctx context.Context, req *request, g *group, consumer string, short func(int) bool) ([]byte, error) {
	g.transfers = g.transfers[:0]
	for range g.items {
		g.transfers = append(g.transfers, f.identify())
	}
	return f.exchange(ctx, errand{
		stage: stageEncode, to: g.encoder, rank: -1, memory: req.memory,
		id:   fmt.Sprintf("%s:%d:%s", req.id, g.items[0], proxy.RandomHex(3)),
		body: encodeBody(req.env, req.media, *g, !f.cfg.NoRewrite, consumer, short),
	})
}

// file takes down what an Encoder said of the media of g.
func (f *Front) file(out *encoded, req *request, g group, answer []byte, pushed bool) error {
	params := reportsOf(answer)
	if len(params) == 0 {
		return nil // it said nothing: the media stay as they are
	}
	m := matching{pushed: pushed, audioInVideo: audioInVideo(req.env)}
	for _, i := range g.items {
		uuid := req.media[i].uuid
		if f.cfg.NoRewrite {
			uuid = ""
		}
		m.uuids, m.kinds = append(m.uuids, uuid), append(m.kinds, req.env.Media[i].Kind)
	}
	at, err := matchReports(params, m)
	if err != nil {
		return err
	}
	for n, i := range g.items {
		if at[n] < 0 {
			continue
		}
		p := params[at[n]]
		r := report{hash: p.name, metadata: metadataOf(p.raw)}
		if !f.cfg.NoRewrite || pushed {
			r.transfer = g.transfers[n]
		}
		out.reports[i] = r
		out.handed.add(p)
	}
	return nil
}

// audioInVideo says whether the client asks for the sound of its videos.
func audioInVideo(e *openai.Envelope) bool {
	var kw struct {
		Use bool `json:"use_audio_in_video"`
	}
	return json.Unmarshal(e.Raw("mm_processor_kwargs"), &kw) == nil && kw.Use
}

// name returns what an Encoder is chosen by for medium i: its name, or a place of its own if it has none.
func (r *request) name(i int) string {
	if uuid := r.media[i].uuid; uuid != "" {
		return uuid
	}
	return fmt.Sprintf("%s:%d", r.id, i)
}

// held returns the name under which an Encoder holds image i, "" if what it holds hangs on more than that: the
// options of the request change what the name stands for.
func (r *request) held(i int) string {
	if r.media[i].content == "" || slices.ContainsFunc(passedOn[:2], func(name string) bool { return r.env.Raw(name) != nil }) {
		return ""
	}
	return string(r.env.Raw("model")) + " " + r.media[i].content
}
