// SPDX-License-Identifier: Apache-2.0

package route

import "github.com/zeebo/xxh3"

const (
	// BlockBytes is how much text a block of a prompt holds, some 30 tokens: what two prompts share is known
	// to that.
	BlockBytes = 128
	// MaxBlocks bounds the blocks of a prompt. What two prompts share beyond 64 KiB changes no choice.
	MaxBlocks = 512
)

// Prompt names the beginnings of a prompt, so that what two prompts share can be told by number: block i
// stands for all that comes before its end. Text is cut every BlockBytes, and an image ends a block. What
// comes behind the last whole block has no name.
//
// Names are 64 bits, of identifiers in their full width: two that are equal by chance send a request to a
// worker that is no better than others, and nothing else.
type Prompt struct {
	blocks []uint64
	sum    uint64 // name of the latest block; the salt's before the first
	part   [BlockBytes]byte
	n      int // bytes in part
}

// NewPrompt returns a prompt without a word. Prompts of different salts share no blocks.
func NewPrompt(salt []byte) *Prompt { return &Prompt{sum: xxh3.Hash(salt)} }

// Text appends text.
func (p *Prompt) Text(b []byte) {
	for len(b) > 0 && len(p.blocks) < MaxBlocks {
		if p.n == 0 && len(b) >= BlockBytes {
			p.end(b[:BlockBytes], textBlock)
			b = b[BlockBytes:]
			continue
		}
		took := copy(p.part[p.n:], b)
		p.n += took
		b = b[took:]
		if p.n == BlockBytes {
			p.n = 0
			p.end(p.part[:], textBlock)
		}
	}
}

// Image appends an image by its content's name, in full width.
func (p *Prompt) Image(name []byte) {
	if len(p.blocks) >= MaxBlocks {
		return
	}
	p.sum = xxh3.HashSeed(p.part[:p.n], p.sum+openBlock)
	p.n = 0
	p.end(name, imageBlock)
}

// What a block is made of goes into its name, so that text which reads like an image's name is not one.
const (
	textBlock uint64 = iota + 1
	openBlock        // text that an image cuts short
	imageBlock
)

func (p *Prompt) end(b []byte, kind uint64) {
	p.sum = xxh3.HashSeed(b, p.sum+kind)
	p.blocks = append(p.blocks, p.sum)
}

// Blocks returns the names, the shortest beginning first.
func (p *Prompt) Blocks() []uint64 { return p.blocks }
