// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"fmt"
	"path/filepath"
	"runtime"
	"unsafe"

	"afterimage/internal/media"
)

// whole runs text model and projector in one process, the way that llama.cpp's own programs do, with
// mtmd's helper in charge of batches and positions. It is what the split is compared with.
type whole struct {
	p    *projector
	slot *slot
	eval func(m cMtmd, c cContext, chunks cChunks, pos, seq, batch int32, logits bool, newPos *int32) int32
}

func newWhole(lib *Library, textPath, projectorPath string) (*whole, error) {
	calls, err := lib.mtmd()
	if err != nil {
		return nil, err
	}
	w := &whole{}
	if _, err := open(filepath.Join(lib.dir, libMtmd), []symbol{{"mtmd_helper_eval_chunks", &w.eval}}); err != nil {
		return nil, err
	}
	text, err := lib.loadText(textPath, true, -1)
	if err != nil {
		return nil, err
	}
	cfg := TextConfig{Slots: 1, ContextTokens: sideContext()}
	cfg.setDefaults(0)
	if w.slot, err = newSlot(text, cfg); err != nil {
		return nil, err
	}
	p := calls.defaults()
	p.useGPU, p.printTimings, p.warmup, p.nThreads = 0, 0, 0, 1
	if lib.onGPU() {
		p.useGPU = 1
	}
	w.p = &projector{lib: lib, c: calls, text: text, ptr: calls.open(projectorPath, text.ptr, p)}
	if w.p.ptr == 0 {
		return nil, fmt.Errorf("no projector %s", projectorPath)
	}
	return w, nil
}

func (w *whole) free() {
	w.slot.free()
	w.p.free()
}

// run prefills one prompt with one picture and generates n tokens.
func (w *whole) run(before string, px media.Pixels, after string, n int) (result, error) {
	bm := w.p.c.bitmapNew(uint32(px.Width), uint32(px.Height), &px.RGB[0])
	defer w.p.c.bitmapFree(bm)
	prompt := cString(before + mediaMarker + after)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&prompt[0])
	in := &cInputText{text: &prompt[0], length: uint64(len(prompt) - 1), parseSpecial: true}
	ch := w.p.c.chunksNew()
	defer w.p.c.chunksFree(ch)
	if code := w.p.c.tokenize(w.p.ptr, ch, in, &bm, 1); code != 0 {
		return result{}, fmt.Errorf("mtmd_tokenize: %d", code)
	}
	w.slot.truncate(0, 0)
	pos := new(int32)
	if code := w.eval(w.p.ptr, w.slot.ctx, ch, 0, 0, defaultBatch, true, pos); code != 0 {
		return result{}, fmt.Errorf("mtmd_helper_eval_chunks: %d", code)
	}
	at := int(*pos)
	return generate(n, func() []float32 { return w.slot.logits(-1) }, func(tok int32) error {
		w.slot.reset()
		w.slot.addToken(0, at, tok, true)
		at++
		return w.slot.decodeTokens()
	})
}

// result is what a prompt led to: greedy tokens and the bits of the logits that each was picked from.
type result struct {
	Tokens []int32
	Logits [][]uint32
}

// take notes the bits of l and returns its likeliest token.
func (r *result) take(l []float32) int32 {
	best := 0
	for i, v := range l {
		if v > l[best] {
			best = i
		}
	}
	r.Tokens = append(r.Tokens, int32(best))
	r.Logits = append(r.Logits, append([]uint32(nil), unsafe.Slice((*uint32)(unsafe.Pointer(&l[0])), len(l))...))
	return int32(best)
}

// generate picks n tokens greedily. next appends a token, after which logits are valid.
func generate(n int, logits func() []float32, next func(tok int32) error) (result, error) {
	var r result
	for range n {
		l := logits()
		if len(l) == 0 {
			return r, fmt.Errorf("no logits after %d tokens", len(r.Tokens))
		}
		if err := next(r.take(l)); err != nil {
			return r, err
		}
	}
	return r, nil
}
