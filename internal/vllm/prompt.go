// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"encoding/binary"
	"slices"

	"afterimage/internal/route"
)

// nameBytes is how much of each end of a URL tells a medium without a name from others, for a guess.
const nameBytes = 4 << 10

// blocks names the beginnings of a request's prompt, as far as 64 KiB of text. Requests of different salts, and of
// different models, have none in common.
func blocks(req *request) []uint64 {
	p := route.NewPrompt(slices.Concat(req.apart, req.env.Raw("model")))
	value := "messages"
	if req.path == pathText {
		value = "prompt"
	}
	req.env.Walk(value, p.Text, func(i int) { p.Image(req.nameFor(i)) })
	return thin(p.Blocks())
}

// Prompts are told apart to a block in their first wholeBlocks, and to every fourth behind: remembering all of a long
// one takes 250 us, these 100 us (BenchmarkSeat).
const (
	wholeBlocks = 32
	everyBlock  = 4
)

// thin leaves out blocks. What is left of a prompt is what is left of those that go on from it.
func thin(blocks []uint64) []uint64 {
	n := min(len(blocks), wholeBlocks)
	out := blocks[:n]
	for n += everyBlock - 1; n < len(blocks); n += everyBlock {
		out = append(out, blocks[n])
	}
	return out
}

// nameFor returns what tells medium i from others in a prompt.
func (r *request) nameFor(i int) []byte {
	if m := r.media[i]; m.uuid != "" {
		return []byte(m.uuid)
	}
	url := r.env.Media[i].URL
	name := binary.LittleEndian.AppendUint64(nil, uint64(len(url)))
	name = append(name, url[:min(len(url), nameBytes)]...)
	return append(name, url[max(len(url)-nameBytes, 0):]...)
}
