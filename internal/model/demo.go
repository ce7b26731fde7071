// SPDX-License-Identifier: Apache-2.0

package model

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"afterimage/internal/gguf"
)

// SquareKey is a whole number in a projector file: the side in pixels that pictures are scaled to,
// whatever their shape, before the engine sees them. It is absent where the engine takes them as
// they are.
const SquareKey = "afterimage.square"

// ChatTemplate is the template for the demo: the model's own puts words of its maker before every
// conversation, which make so small a model answer something else.
const ChatTemplate = "chatml"

// demoTower is the demo's vision tower. Encoding a picture takes 180 ms on one thread of a 2024
// server core, so that reuse is visible to the eye. Attention and positions are weak, so that the
// features of a cell are about that cell. The colour map fits these numbers and demoSeed only.
var demoTower = towerShape{
	width: 384, inner: 1536, heads: 6, layers: 8, image: 224, patch: 14, shuffle: 4,
	gains: gains{attention: 0.05, position: 0.02, hidden: 1.5, threshold: 0.6},
}

const demoSeed = 7 + visionSeed

// colourMap maps the projector's hidden features of a cell to one score per colour: float32 in
// little endian, one row of len(colours) for each feature and one for the constant. It comes from a
// ridge regression over 600 painted pictures (9,600 cells).
//
//go:embed demo/colours-384x8.bin
var colourMap []byte

// WriteDemo writes the demo pair to dir, which it makes if it is missing. smollm2 is the path of
// SmolLM2-135M-Instruct in GGUF; it becomes the text model of the pair, by a hard link where the file
// system allows it.
func WriteDemo(dir, smollm2 string) error {
	text, err := gguf.Open(smollm2)
	if err != nil {
		return fmt.Errorf("model: text model of the demo: %w", err)
	}
	words, err := wordEmbeddings(text)
	if err != nil {
		return err
	}
	width, features := len(words[0]), len(colourMap)/4/len(colours)-1
	if width != features {
		return fmt.Errorf("model: %s has embeddings of %d values, but the demo is made for the %d of SmolLM2-135M",
			smollm2, width, features)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	if err := link(smollm2, filepath.Join(dir, TextFile)); err != nil {
		return fmt.Errorf("model: text model of the demo: %w", err)
	}
	shape := demoTower
	shape.last = func(b *builder, hidden, out int) { b.colourLayer(words, hidden, out) }
	b := tower(InternVL, shape, width, gguf.F16, demoSeed)
	b.Set("general.name", "afterimage-demo")
	b.Set(SquareKey, uint32(shape.image))
	if err := b.WriteFile(filepath.Join(dir, ProjectorFile)); err != nil {
		return fmt.Errorf("model: projector of the demo: %w", err)
	}
	return nil
}

// colourLayer adds the layer that turns hidden features into embeddings: scores of colours, times
// the embeddings of their words.
func (b *builder) colourLayer(words [][]float32, hidden, out int) {
	// at returns the weight from feature to value; the feature after the last is the constant.
	at := func(feature, value int) float32 {
		sum := 0.0
		for c, word := range words {
			bits := binary.LittleEndian.Uint32(colourMap[4*(feature*len(words)+c):])
			sum += float64(math.Float32frombits(bits)) * float64(word[value]) // exact product: fusing changes nothing
		}
		return float32(sum)
	}
	b.Add("mm.model.mlp.3.weight", b.matrix, func(dst []float32, off int) {
		for i := range dst {
			dst[i] = at((off+i)%hidden, (off+i)/hidden)
		}
	}, hidden, out)
	b.Add("mm.model.mlp.3.bias", gguf.F32, func(dst []float32, off int) {
		for i := range dst {
			dst[i] = at(hidden, off+i)
		}
	}, out)
}

// wordEmbeddings returns the embeddings of the words for colours in the text model f. Each word is
// one token that begins with a space, which byte-level vocabularies write as "Ġ".
func wordEmbeddings(f *gguf.File) ([][]float32, error) {
	const tokensKey = "tokenizer.ggml.tokens"
	tokens, ok := f.Strings(tokensKey)
	if !ok {
		return nil, fmt.Errorf("model: %s has no %s: not a text model", f.Path(), tokensKey)
	}
	out := make([][]float32, len(colours))
	for c, word := range colours {
		id := slices.Index(tokens, "Ġ"+word)
		if id < 0 {
			return nil, fmt.Errorf("model: %s has no single token for %q; the demo needs SmolLM2-135M", f.Path(), " "+word)
		}
		var err error
		if out[c], err = f.Row("token_embd.weight", id); err != nil {
			return nil, fmt.Errorf("model: embedding of %q: %w", " "+word, err)
		}
	}
	return out, nil
}
