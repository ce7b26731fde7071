// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"context"
	"fmt"
	"reflect"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/gguf"
	"afterimage/internal/media"
)

// EncoderConfig says how a projector is run.
type EncoderConfig struct {
	Model   string // path of the text model, of which only metadata and vocabulary are read
	MMProj  string // path of the projector
	Threads int    // per native call; 0 means 1
}

// Encoder runs a projector with libmtmd. It implements engine.Encoder.
type Encoder struct {
	spec    engine.EncoderSpec
	layouts layoutCache

	// turn holds the one permit to enter p. It is a channel rather than a mutex so that waiting ends
	// with the caller's context.
	turn   chan struct{}
	p      *projector
	closed bool
}

var _ engine.Encoder = (*Encoder)(nil)

// NewEncoder loads a projector and works out what it announces.
func NewEncoder(lib *Library, cfg EncoderConfig) (*Encoder, error) {
	if cfg.Threads < 0 || cfg.Threads > 512 {
		return nil, fmt.Errorf("llama: %d threads, want 0 to 512", cfg.Threads)
	}
	if _, err := lib.mtmd(); err != nil {
		return nil, err
	}
	if _, err := openTextHeader(cfg.Model); err != nil {
		return nil, err
	}
	head, err := openProjectorHeader(cfg.MMProj)
	if err != nil {
		return nil, err
	}
	processing, err := processingOf(head)
	if err != nil {
		return nil, err
	}
	p, err := lib.loadProjector(cfg.MMProj, cfg.Model, max(cfg.Threads, 1))
	if err != nil {
		return nil, err
	}
	e := &Encoder{turn: make(chan struct{}, 1), p: p}
	e.spec = engine.EncoderSpec{
		Engine:     lib.Identity(),
		Backend:    lib.Backend(),
		Model:      p.text.name,
		Cols:       p.text.cols,
		DType:      embedding.Float32,
		Processing: processing,
	}
	if err := e.probe(cfg.MMProj); err != nil {
		e.Close()
		return nil, fmt.Errorf("llama: projector %s: %w", cfg.MMProj, err)
	}
	return e, nil
}

// processingOf returns, from what the projector's file says, the rules by which pictures must be prepared for a projector.
func processingOf(head *gguf.File) (embedding.Processing, error) {
	p := embedding.Processing{Background: embedding.DefaultBackground}
	if square, ok := head.Uint(keySquare); ok {
		if square < 1 || checkSize(int(min(square, maxPixels)), int(min(square, maxPixels))) != nil {
			return p, fmt.Errorf("llama: projector %s asks for pictures of %dx%d (%s), which cannot be", head.Path(), square, square, keySquare)
		}
		p.Square = int(square)
	}
	return p, nil
}

// probe fills in the row limit and the fingerprint.
func (e *Encoder) probe(path string) error {
	var layouts []embedding.Layout
	for _, sz := range probeSizes(e.spec.Processing.Square) {
		l, err := e.p.layout(sz.width, sz.height)
		if err != nil {
			return err
		}
		e.spec.MaxRows = max(e.spec.MaxRows, l.Rows())
		if len(layouts) < fingerprintLayouts {
			layouts = append(layouts, l)
		}
	}
	var err error
	e.spec.Fingerprint, err = fingerprint(path, e.spec, layouts)
	return err
}

// fingerprintLayouts is how many of the probed layouts the fingerprint covers. The first few show all
// that the text model adds to a layout; those of huge pictures would only take time to write down.
const fingerprintLayouts = 3

// probeSizes are the pictures whose rows bound those of all others. Projectors give a fixed number of
// rows, or grow with the picture up to a limit, or choose a grid of tiles by the ratio of the sides;
// so the list holds small, middle and very large pictures of many ratios. Layout refuses a picture
// that has more rows than any of these, which makes the bound hold by construction.
//
// square is the only size that reaches the projector, when it is not 0.
func probeSizes(square int) []size {
	if square > 0 {
		return []size{{square, square}}
	}
	var out []size
	for _, side := range []int{1, 64, 448, 1024, 4096, 8192} {
		out = append(out, size{side, side})
	}
	for _, ratio := range []int{2, 3, 4, 5, 6, 8, 10, 12, 20, 50, 200} {
		for _, long := range []int{2000, 8192, 11000} {
			out = append(out, size{long, max(long/ratio, 1)}, size{max(long/ratio, 1), long})
		}
	}
	return append(out, size{4096, 3072}, size{3072, 4096}, size{7680, 4320}, size{4320, 7680})
}

// Spec describes the Encoder.
func (e *Encoder) Spec() engine.EncoderSpec { return e.spec }

// enter waits for the permit to use the projector.
func (e *Encoder) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("llama: waiting for the encoder: %w", ctx.Err())
	}
	if e.closed {
		e.leave()
		return ErrClosed
	}
	return nil
}

func (e *Encoder) leave() { <-e.turn }

// Layout returns the layout of a picture. The caller must not change it: it is shared.
func (e *Encoder) Layout(ctx context.Context, width, height int) (embedding.Layout, error) {
	if err := e.checkSize(width, height); err != nil {
		return embedding.Layout{}, err
	}
	if l, ok := e.layouts.get(size{width, height}); ok {
		return l, nil
	}
	if err := e.enter(ctx); err != nil {
		return embedding.Layout{}, err
	}
	defer e.leave()
	l, err := e.p.layout(width, height)
	if err != nil {
		return embedding.Layout{}, err
	}
	if n := l.Rows(); n > e.spec.MaxRows {
		return embedding.Layout{}, fmt.Errorf("llama: a picture of %dx%d yields %d rows, more than the announced %d", width, height, n, e.spec.MaxRows)
	}
	e.layouts.put(size{width, height}, l)
	return l, nil
}

// checkSize refuses sizes that no picture may have here.
func (e *Encoder) checkSize(width, height int) error {
	if s := e.spec.Processing.Square; s > 0 && (width != s || height != s) {
		return fmt.Errorf("llama: a picture of %dx%d reached the encoder, which takes %dx%d only: scale it first (processing.square)", width, height, s, s)
	}
	return checkSize(width, height)
}

// Encode writes the rows of px to dst. After an error dst may hold rows of the picture's first chunks.
func (e *Encoder) Encode(ctx context.Context, px media.Pixels, dst []byte) error {
	if err := checkPixels(px); err != nil {
		return err
	}
	want, err := e.Layout(ctx, px.Width, px.Height)
	if err != nil {
		return err
	}
	if n := want.Rows() * e.spec.Cols * e.spec.DType.Bytes(); len(dst) != n {
		return fmt.Errorf("llama: room for %d bytes, and the rows of a picture of %dx%d take %d", len(dst), px.Width, px.Height, n)
	}
	if err := e.enter(ctx); err != nil {
		return err
	}
	defer e.leave()
	c, err := e.p.cut(px.Width, px.Height, px.RGB)
	if err != nil {
		return err
	}
	defer c.free()
	got, err := c.layout()
	if err != nil {
		return err
	}
	// A layout that depended on pixels would break every reader of a Store hit.
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("llama: the layout of a picture of %dx%d depends on its pixels; this projector cannot be served", px.Width, px.Height)
	}
	return c.encode(dst)
}

// Close waits for a running call and frees the projector.
func (e *Encoder) Close() error {
	e.turn <- struct{}{}
	defer e.leave()
	if !e.closed {
		e.closed = true
		e.p.free()
	}
	return nil
}
