// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Use is one image at one position of one request.
type Use struct {
	Image uint32 // identity; equal images have equal numbers, which begin at 0
	Bytes int32  // of the embedding
}

// Request is one request of a trace.
type Request struct {
	At     time.Duration // since the first request
	Text   int32         // tokens of text
	Output int32         // tokens of the answer
	first  int32         // of its images in Trace.uses
	n      int32
}

// Trace is a sequence of requests, in order of time.
type Trace struct {
	Requests []Request
	Images   int // distinct ones
	// Assumed says how images were told apart where the source does not say; "" if it does.
	Assumed string
	uses    []Use
}

// Uses returns the images of request i, in prompt order.
func (t *Trace) Uses(i int) []Use {
	r := &t.Requests[i]
	return t.uses[r.first : r.first+r.n]
}

// Items returns the number of uses of all requests together.
func (t *Trace) Items() int { return len(t.uses) }

// Length returns the time between the first and the last request.
func (t *Trace) Length() time.Duration {
	if len(t.Requests) == 0 {
		return 0
	}
	return t.Requests[len(t.Requests)-1].At
}

// Rate returns requests per second, 0 if the trace has no length.
func (t *Trace) Rate() float64 {
	if t.Length() <= 0 {
		return 0
	}
	return float64(len(t.Requests)-1) / t.Length().Seconds()
}

// DistinctBytes returns the size of all distinct embeddings together.
func (t *Trace) DistinctBytes() int64 {
	size := make([]int32, t.Images)
	for _, u := range t.uses {
		size[u.Image] = u.Bytes
	}
	total := int64(0)
	for _, b := range size {
		total += int64(b)
	}
	return total
}

// Faster returns the trace with all times divided by factor. It shares its images with t.
func (t *Trace) Faster(factor float64) *Trace {
	f := *t
	f.Requests = slices.Clone(t.Requests)
	for i := range f.Requests {
		f.Requests[i].At = time.Duration(float64(f.Requests[i].At) / factor)
	}
	return &f
}

// Head returns the first n requests of t, or t if it has no more.
func (t *Trace) Head(n int) *Trace {
	if n >= len(t.Requests) {
		return t
	}
	h := *t
	h.Requests = t.Requests[:n]
	return &h
}

// maxUses bounds a trace: positions are counted in 32 bits.
const maxUses = math.MaxInt32

// builder collects a trace.
type builder struct {
	t     Trace
	names map[string]uint32 // of images
}

func newBuilder() *builder { return &builder{names: map[string]uint32{}} }

// image returns the number of the image with this name.
func (b *builder) image(name []byte) uint32 {
	if n, ok := b.names[string(name)]; ok {
		return n
	}
	n := uint32(len(b.names))
	b.names[string(name)] = n
	return n
}

// begin adds a request without images; use gives the last one an image.
func (b *builder) begin(at time.Duration, text, output int32) {
	b.t.Requests = append(b.t.Requests, Request{At: at, Text: text, Output: output, first: int32(len(b.t.uses))})
}

func (b *builder) use(u Use) error {
	if len(b.t.uses) == maxUses {
		return fmt.Errorf("more than %d images", maxUses)
	}
	b.t.uses = append(b.t.uses, u)
	b.t.Requests[len(b.t.Requests)-1].n++
	b.t.Images = max(b.t.Images, int(u.Image)+1)
	return nil
}

// trace returns what was collected, ordered and beginning at time 0.
func (b *builder) trace() (*Trace, error) {
	t := &b.t
	if len(t.Requests) == 0 {
		return nil, fmt.Errorf("no requests")
	}
	slices.SortStableFunc(t.Requests, func(x, y Request) int { return cmp.Compare(x.At, y.At) })
	first := t.Requests[0].At
	for i := range t.Requests {
		t.Requests[i].At -= first
	}
	return t, nil
}
