// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"sync"

	"afterimage/internal/media"
	"afterimage/internal/openai"
	"afterimage/internal/tracing"
	"afterimage/internal/vllm/relay"
)

// bring has the relay bring what the Store has of the request's images to the consumer. It returns nil if there is
// nothing that it could do.
func (f *Front) bring(ctx context.Context, req *request, consumer string, past *history) *relay.Batch {
	past.relayed, req.relayed = false, 0
	if f.cfg.Relay == nil || consumer == "" || f.cfg.NoRewrite || past.noRelay {
		return nil
	}
	if req.pictures == nil {
		req.pictures = f.pictures(req)
	}
	ctx, span := f.cfg.Tracer.Start(ctx, "relay", tracing.Client)
	span.Set("consumer", consumer)
	defer span.End()
	b := f.cfg.Relay.Bring(ctx, consumer, req.pictures)
	for i := range b.Items {
		if b.Items[i].Transfer != "" {
			past.relayed = true
			req.relayed++
		}
	}
	span.Set("relayed", req.relayed)
	req.stage("relay")
	return b
}

// gone forgets what was known of an instance that is gone, or another process from now on.
func (f *Front) gone(url string, addresses []string) {
	f.held.forget(url)
	if f.cfg.Relay != nil {
		for _, at := range addresses {
			f.cfg.Relay.Forget(at)
		}
	}
}

// brought says whether medium i is at the consumer already.
func brought(b *relay.Batch, i int) bool { return b != nil && b.Items[i].Transfer != "" }

// reportBrought files the images that were brought as if an Encoder had reported them.
func (out *encoded) reportBrought(b *relay.Batch) {
	if b == nil {
		return
	}
	at := map[string][]string{}
	for i, it := range b.Items {
		if it.Transfer != "" {
			at[it.Hash] = append(at[it.Hash], strconv.Itoa(i))
		}
	}
	for i, it := range b.Items {
		if it.Transfer == "" {
			continue
		}
		grid := []byte(it.Grid.String())
		out.reports[i] = report{hash: it.Hash, transfer: it.Transfer, metadata: []member{{relay.MetadataName, grid}}}
		raw := []byte(`{"item_indices":[` + strings.Join(at[it.Hash], ",") + `],"metadata":{"` + relay.MetadataName + `":`)
		raw = append(append(raw, grid...), `},"transfer_id":`...)
		out.handed.add(member{it.Hash, append(openai.AppendString(raw, it.Transfer), '}')})
	}
}

// learn tells the relay what Encoders said of the images of a request that a worker has begun to answer.
func (f *Front) learn(req *request, enc encoded, b *relay.Batch) {
	for i := range req.media {
		source := "encoder"
		if brought(b, i) {
			source = "relay"
		}
		f.metrics.sources.WithLabelValues(source).Inc()
		if f.cfg.Relay == nil || source == "relay" || req.env.Media[i].Kind != "image_url" {
			continue
		}
		if req.pictures == nil {
			req.pictures = f.pictures(req)
		}
		// Of other metadata, and of more, it is not known what they depend on.
		if r := enc.reports[i]; r.hash != "" && len(r.metadata) == 1 && r.metadata[0].name == relay.MetadataName {
			if g, ok := relay.ParseGrid(r.metadata[0].raw); ok {
				f.cfg.Relay.Learn(req.pictures[i], r.hash, g)
			}
		}
	}
}

// pictures describes the media of a request to the relay. What is no image, or cannot be measured, has no size.
func (f *Front) pictures(req *request) []relay.Picture {
	var options strings.Builder
	for _, name := range passedOn[:2] {
		if raw := req.env.Raw(name); raw != nil {
			options.WriteString(name + "=" + string(raw) + ";")
		}
	}
	out := make([]relay.Picture, len(req.media))
	for i, m := range req.media {
		if req.env.Media[i].Kind != "image_url" || m.content == "" {
			continue
		}
		out[i] = relay.Picture{UUID: m.uuid, Content: m.content}
		out[i].Model, out[i].Options = string(req.env.Raw("model")), options.String()
		if s := f.sizes.of(m, req.env.Media[i].URL); s != (size{}) {
			out[i].Width, out[i].Height, out[i].Orientation = s.width, s.height, s.orientation
		}
	}
	return out
}

// size is what the header of an image file says; zero if it cannot be read.
type size struct{ width, height, orientation int }

// sizes remembers the sizes of images by the names of what they hold.
type sizes struct {
	mu         sync.Mutex // guards what follows
	young, old map[string]size
}

// maxSizes bounds them; each takes about 120 bytes.
const maxSizes = 1 << 15

// measuring are the limits of images whose headers are read. What they can be, workers decide.
var measuring = media.Limits{MaxBytes: 1 << 30, MaxPixels: 1 << 30}

// of returns the size of m, which came as url.
func (s *sizes) of(m medium, url []byte) size {
	s.mu.Lock()
	found, ok := s.young[m.content]
	if !ok {
		found, ok = s.old[m.content]
	}
	s.mu.Unlock()
	if !ok {
		found = measure(m, url)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.young == nil {
		s.young = map[string]size{}
	}
	if s.young[m.content] = found; len(s.young) > maxSizes/2 {
		s.young, s.old = map[string]size{}, s.young
	}
	return found
}

// measure reads the header of m.
func measure(m medium, url []byte) size {
	file := m.file
	if file == nil {
		var err error
		// A copy, since it is decoded in place, and the original goes to Encoders.
		if file, _, err = media.ParseDataURL(bytes.Clone(url)); err != nil {
			return size{}
		}
	}
	i, err := media.Inspect(file, measuring)
	if err != nil {
		return size{}
	}
	return size{i.Width, i.Height, i.Orientation}
}
