// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
)

// maxSeen bounds the images that are remembered. When there are more, the least used makes way and the new
// one inherits its count, so that what is used often is never missed (Metwally et al., the Space-Saving
// algorithm).
const maxSeen = 512

// seen counts what requests came to. Methods may be called from any goroutine.
type seen struct {
	mu     sync.Mutex // guards what follows
	totals Totals
	images map[embedding.Identifier]*seenImage
}

type seenImage struct {
	SeenImage
	weight uint64 // uses, and those of the image whose place it took
}

func newSeen() *seen {
	return &seen{totals: Totals{Sources: map[control.Source]uint64{}}, images: map[embedding.Identifier]*seenImage{}}
}

// end takes in a request that has ended.
func (s *seen) end(t control.Trace, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.totals.Requests++
	if t.Error != "" {
		s.totals.Failed++
		return
	}
	met := map[embedding.Identifier]bool{}
	for _, it := range t.Items {
		if met[it.Identifier] || it.Source == "" { // shown twice is one image
			continue
		}
		met[it.Identifier] = true
		s.totals.Images++
		s.totals.Bytes += uint64(it.Bytes)
		s.totals.Sources[it.Source]++
		s.use(it, now)
	}
}

func (s *seen) use(it control.TraceItem, now time.Time) {
	m := s.images[it.Identifier]
	if m == nil {
		m = &seenImage{SeenImage: SeenImage{Identifier: it.Identifier, Sources: map[control.Source]uint64{}}}
		if len(s.images) >= maxSeen {
			least := s.least()
			m.weight = least.weight
			delete(s.images, least.Identifier)
		}
		s.images[it.Identifier] = m
	}
	m.Uses++
	m.weight++
	m.Sources[it.Source]++
	m.Rows, m.Bytes, m.Last = it.Rows, it.Bytes, now
}

// least returns the image used least, the oldest of several.
func (s *seen) least() (out *seenImage) {
	for _, m := range s.images {
		if out == nil || m.weight < out.weight || m.weight == out.weight && m.Last.Before(out.Last) {
			out = m
		}
	}
	return out
}

// view returns copies; the images are those used most.
func (s *seen) view() (Totals, []SeenImage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.totals
	t.Sources = maps.Clone(t.Sources)
	images := make([]SeenImage, 0, len(s.images))
	for _, m := range s.images {
		images = append(images, m.SeenImage)
	}
	slices.SortFunc(images, func(a, b SeenImage) int {
		return cmp.Or(cmp.Compare(b.Uses, a.Uses), b.Last.Compare(a.Last), cmp.Compare(a.Identifier, b.Identifier))
	})
	images = images[:min(len(images), viewed)]
	for i := range images {
		images[i].Sources = maps.Clone(images[i].Sources)
	}
	return t, images
}
