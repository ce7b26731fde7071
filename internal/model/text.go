// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math"

	"afterimage/internal/gguf"
)

// textShape is the shape of a random text model.
type textShape struct {
	width, inner   int // embedding and feed-forward length
	heads, kvHeads int
	headLen        int // 0: width / heads; only the llama architecture takes another length
	layers         int
}

// chatTemplate is ChatML in the form that llama.cpp recognises.
const chatTemplate = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + " +
	"'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

// controlTokens end the vocabulary. All projectors find the marks here that they put round a picture.
var controlTokens = []string{
	"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
	"<img>", "</img>", "<start_of_image>", "<end_of_image>",
}

// textModel returns a random text model of the given architecture: llama, qwen2 or qwen2vl.
func textModel(arch string, s textShape, typ gguf.Type, seed uint64) *builder {
	b := &builder{rand: stream(seed), matrix: typ}
	headLen := s.headLen
	if headLen == 0 {
		headLen = s.width / s.heads
	}
	b.Set("general.architecture", arch)
	b.Set("general.name", "random-"+arch)
	b.Set(arch+".context_length", uint32(8192))
	b.Set(arch+".embedding_length", uint32(s.width))
	b.Set(arch+".block_count", uint32(s.layers))
	b.Set(arch+".feed_forward_length", uint32(s.inner))
	b.Set(arch+".attention.head_count", uint32(s.heads))
	b.Set(arch+".attention.head_count_kv", uint32(s.kvHeads))
	b.Set(arch+".attention.layer_norm_rms_epsilon", float32(1e-6))
	b.Set(arch+".rope.freq_base", float32(10000))
	if s.headLen != 0 {
		b.Set(arch+".attention.key_length", uint32(headLen))
		b.Set(arch+".attention.value_length", uint32(headLen))
	}
	switch arch {
	case "llama":
		b.Set(arch+".rope.dimension_count", uint32(headLen))
	case "qwen2vl": // the shares of time, height and width in the positions of a head
		half := int32(headLen / 2)
		side := half * 3 / 8
		b.Set(arch+".rope.dimension_sections", []int32{half - 2*side, side, side, 0})
	}
	// Gains of 2 in attention keep the answer dependent on what is far away in the prompt, so that a
	// test notices a wrong row.
	words := b.vocabulary()
	b.mat("token_embd.weight", math.Sqrt(float64(s.width)), s.width, words)
	b.vec("output_norm.weight", 1, 0.1, s.width)
	b.mat("output.weight", 1, s.width, words)
	for i := range s.layers {
		b.textLayer(fmt.Sprintf("blk.%d.", i), s, headLen, arch != "llama")
	}
	return b
}

// textLayer adds one transformer layer.
func (b *builder) textLayer(p string, s textShape, headLen int, biases bool) {
	q, kv := headLen*s.heads, headLen*s.kvHeads
	b.vec(p+"attn_norm.weight", 1, 0.1, s.width)
	b.mat(p+"attn_q.weight", 2, s.width, q)
	b.mat(p+"attn_k.weight", 2, s.width, kv)
	b.mat(p+"attn_v.weight", 1, s.width, kv)
	if biases {
		b.vec(p+"attn_q.bias", 0, 0.1, q)
		b.vec(p+"attn_k.bias", 0, 0.1, kv)
		b.vec(p+"attn_v.bias", 0, 0.1, kv)
	}
	b.mat(p+"attn_output.weight", 2, q, s.width)
	b.vec(p+"ffn_norm.weight", 1, 0.1, s.width)
	b.mat(p+"ffn_gate.weight", 1, s.width, s.inner)
	b.mat(p+"ffn_up.weight", 1, s.width, s.inner)
	b.mat(p+"ffn_down.weight", 1, s.inner, s.width)
}

// vocabulary sets a vocabulary of single bytes and control tokens and returns its size.
func (b *builder) vocabulary() int {
	const normal, control = 1, 3 // token types of GGUF
	tokens := byteLetters()
	types := make([]int32, len(tokens), len(tokens)+len(controlTokens))
	for i := range types {
		types[i] = normal
	}
	for _, t := range controlTokens {
		tokens, types = append(tokens, t), append(types, control)
	}
	b.Set("tokenizer.ggml.model", "gpt2")
	b.Set("tokenizer.ggml.pre", "default")
	b.Set("tokenizer.ggml.tokens", tokens)
	b.Set("tokenizer.ggml.token_type", types)
	b.Set("tokenizer.ggml.merges", []string{}) // none: each byte is a token
	b.Set("tokenizer.ggml.eos_token_id", uint32(256))
	b.Set("tokenizer.ggml.add_bos_token", false)
	b.Set("tokenizer.chat_template", chatTemplate)
	return len(tokens)
}

// byteLetters returns the letter that GPT-2's byte-level vocabularies write for each byte: itself
// where it is printable, else one from U+0100 up.
func byteLetters() []string {
	letters, next := make([]string, 0, 256), rune(256)
	for c := range rune(256) {
		if c >= '!' && c <= '~' || c >= 0xa1 && c <= 0xac || c >= 0xae && c <= 0xff {
			letters = append(letters, string(c))
			continue
		}
		letters = append(letters, string(next))
		next++
	}
	return letters
}
