// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"

	"afterimage/internal/gguf"
)

// towerShape is the shape of a vision tower with its projector.
type towerShape struct {
	width, inner  int // embedding and feed-forward length
	heads, layers int
	image, patch  int // side of the picture and of a patch, in pixels
	shuffle       int // patches per side that internvl and gemma3 merge into one row
	gains         gains
	// last adds the last layer of an internvl projector, hidden to out; nil makes it random.
	last func(b *builder, hidden, out int)
}

// gains scales the weights that decide how much each part adds to the features.
type gains struct {
	attention float64 // attention matrices: how much of a cell's neighbours a cell's features hold
	position  float32 // internvl: how much of its place
	hidden    float64 // internvl: the hidden layer of the projector
	threshold float32 // internvl: deviation of its bias
}

// randomGains let every part of the tower matter.
var randomGains = gains{attention: 1.5, position: 0.5, hidden: 2, threshold: 0.5}

// The names of keys and tensors are those that libmtmd looks for; each projector has its own set, and
// a missing one makes the library refuse the file.

// tower returns a projector file for rows of cols values.
func tower(proj Projector, s towerShape, cols int, typ gguf.Type, seed uint64) *builder {
	b := &builder{rand: stream(seed), matrix: typ}
	b.Set("general.architecture", "clip")
	b.Set("clip.has_vision_encoder", true)
	b.Set("clip.projector_type", proj.fileName())
	b.Set("clip.use_gelu", true)
	b.Set("clip.vision.image_size", uint32(s.image))
	b.Set("clip.vision.patch_size", uint32(s.patch))
	b.Set("clip.vision.embedding_length", uint32(s.width))
	b.Set("clip.vision.feed_forward_length", uint32(s.inner))
	b.Set("clip.vision.block_count", uint32(s.layers))
	b.Set("clip.vision.projection_dim", uint32(cols))
	b.Set("clip.vision.attention.head_count", uint32(s.heads))
	b.Set("clip.vision.attention.layer_norm_epsilon", float32(1e-6))
	// Pixels of 0..255 become -1..1.
	b.Set("clip.vision.image_mean", []float32{0.5, 0.5, 0.5})
	b.Set("clip.vision.image_std", []float32{0.5, 0.5, 0.5})
	b.patches(proj, s)
	for i := range s.layers {
		b.visionLayer(fmt.Sprintf("v.blk.%d.", i), s)
	}
	b.projector(proj, s, cols)
	return b
}

// patches adds what turns pixels into the rows that enter the first layer.
func (b *builder) patches(proj Projector, s towerShape) {
	n := (s.image / s.patch) * (s.image / s.patch)
	b.mat("v.patch_embd.weight", 1, s.patch, s.patch, 3, s.width)
	switch proj {
	case MLP:
		b.bias("v.patch_embd", s.width)
		b.vec("v.position_embd.weight", 0, 0.5, s.width, n)
	case InternVL:
		b.Set("clip.vision.projector.scale_factor", uint32(s.shuffle))
		b.Set("clip.vision.preproc_max_tiles", uint32(1))
		b.bias("v.patch_embd", s.width)
		b.vec("v.class_embd", 0, 0.5, s.width)
		b.vec("v.position_embd.weight", 0, s.gains.position, s.width, n+1)
	case Gemma3:
		b.Set("clip.vision.projector.scale_factor", uint32(s.shuffle))
		b.bias("v.patch_embd", s.width)
		b.vec("v.position_embd.weight", 0, 0.5, s.width, n)
		b.norm("v.post_ln", s.width)
	case Qwen2VL: // a second matrix for the second of two frames; positions come from M-RoPE
		b.mat("v.patch_embd.weight.1", 1, s.patch, s.patch, 3, s.width)
		b.norm("v.post_ln", s.width)
	}
}

// visionLayer adds one transformer layer.
func (b *builder) visionLayer(p string, s towerShape) {
	for _, name := range []string{"attn_q", "attn_k", "attn_v", "attn_out"} {
		b.linear(p+name, s.gains.attention, s.width, s.width)
	}
	b.norm(p+"ln1", s.width)
	b.norm(p+"ln2", s.width)
	b.linear(p+"ffn_up", 1, s.width, s.inner)
	b.linear(p+"ffn_down", 1, s.inner, s.width)
}

// projector adds what turns the rows of the last layer into rows of cols values.
func (b *builder) projector(proj Projector, s towerShape, cols int) {
	switch proj {
	case MLP:
		b.linear("mm.0", 1, s.width, cols)
		b.linear("mm.2", 1.7, cols, cols)
	case InternVL:
		merged := s.width * s.shuffle * s.shuffle
		b.norm("mm.model.mlp.0", merged)
		b.mat("mm.model.mlp.1.weight", s.gains.hidden, merged, cols)
		b.vec("mm.model.mlp.1.bias", 0, s.gains.threshold, cols)
		if s.last != nil {
			s.last(b, cols, cols)
		} else {
			b.linear("mm.model.mlp.3", 1.7, cols, cols)
		}
	case Gemma3: // averages patches, so the width stays; the matrix is stored the other way round
		b.mat("mm.input_projection.weight", 1, cols, s.width)
		b.vec("mm.soft_emb_norm.weight", 1, 0.1, s.width)
	case Qwen2VL: // merges 2 x 2 patches, always
		b.linear("mm.0", 1, 4*s.width, 4*s.width)
		b.linear("mm.2", 1.7, 4*s.width, cols)
	}
}
