// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"afterimage/internal/gguf"
)

// Projector names a way from the tower's features to the rows that a text model takes.
type Projector string

// The projectors that WriteRandom makes. They differ in what a row is and how it enters the prompt:
// InternVL merges patches, Gemma3 rows attend to each other in both directions, Qwen2VL pictures keep
// their shape and carry two-dimensional positions.
const (
	MLP      Projector = "mlp"
	InternVL Projector = "internvl"
	Gemma3   Projector = "gemma3"
	Qwen2VL  Projector = "qwen2vl"
)

// Projectors lists all projectors.
func Projectors() []Projector { return []Projector{MLP, InternVL, Gemma3, Qwen2VL} }

// fileName returns the name that projector files carry.
func (p Projector) fileName() string {
	if p == Qwen2VL {
		return "qwen2vl_merger"
	}
	return string(p)
}

// Size chooses the shape of a random pair.
type Size string

// The sizes of random pairs. Encode times are for one thread of a 2024 server core.
const (
	Tiny  Size = "tiny"  // 1 MB; a picture takes 2 ms
	Small Size = "small" // 8 MB; 15 to 50 ms
	Bench Size = "bench" // 30 MB; 80 to 100 ms, rows of 4 kB
)

// Sizes lists all sizes.
func Sizes() []Size { return []Size{Tiny, Small, Bench} }

// RandomOptions says what pair WriteRandom makes. Empty fields mean MLP and Tiny.
type RandomOptions struct {
	Projector Projector
	Size      Size
	Seed      uint64
}

// visionSeed is added to the seed of the text model to give that of its tower.
const visionSeed = 1000

// shape is a size, spelled out.
type shape struct {
	text  textShape
	tower towerShape
	typ   gguf.Type
}

var shapes = map[Size]shape{
	Tiny: {
		text:  textShape{width: 64, inner: 128, heads: 4, kvHeads: 2, layers: 2},
		tower: towerShape{width: 64, inner: 128, heads: 4, layers: 2, image: 56, patch: 14, shuffle: 2, gains: randomGains},
		typ:   gguf.F32,
	},
	Small: {
		text:  textShape{width: 256, inner: 512, heads: 8, kvHeads: 2, layers: 2},
		tower: towerShape{width: 192, inner: 768, heads: 3, layers: 5, image: 168, patch: 14, shuffle: 2, gains: randomGains},
		typ:   gguf.F16,
	},
	// A wide text model with narrow attention: big rows and a prefill that is cheap beside the encode.
	Bench: {
		text:  textShape{width: 1024, inner: 256, heads: 4, kvHeads: 1, headLen: 64, layers: 2},
		tower: towerShape{width: 384, inner: 1536, heads: 6, layers: 5, image: 224, patch: 14, shuffle: 2, gains: randomGains},
		typ:   gguf.F16,
	},
}

// WriteRandom writes a pair of random models to dir, which it makes if it is missing. The bytes
// depend on o alone.
func WriteRandom(dir string, o RandomOptions) error {
	if o.Projector == "" {
		o.Projector = MLP
	}
	if o.Size == "" {
		o.Size = Tiny
	}
	if !slices.Contains(Projectors(), o.Projector) {
		return fmt.Errorf("model: unknown projector %q, want one of %q", o.Projector, Projectors())
	}
	s, ok := shapes[o.Size]
	if !ok {
		return fmt.Errorf("model: unknown size %q, want one of %q", o.Size, Sizes())
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	arch := architecture(o.Projector, &s.text)
	text := textModel(arch, s.text, s.typ, o.Seed)
	if err := text.WriteFile(filepath.Join(dir, TextFile)); err != nil {
		return fmt.Errorf("model: text model: %w", err)
	}
	vision := tower(o.Projector, s.tower, s.text.width, s.typ, o.Seed+visionSeed)
	if err := vision.WriteFile(filepath.Join(dir, ProjectorFile)); err != nil {
		return fmt.Errorf("model: projector: %w", err)
	}
	return nil
}

// architecture returns the text architecture for a projector, and gives t heads that it can have.
func architecture(p Projector, t *textShape) string {
	switch {
	case p == Qwen2VL:
		if t.headLen != 0 { // qwen2vl wants heads that add up to the width
			t.heads, t.headLen = t.width/t.headLen, 0
		}
		return "qwen2vl"
	case p == InternVL || t.headLen != 0:
		return "llama"
	}
	return "qwen2"
}
