// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"afterimage/internal/embedding"
	"afterimage/internal/media"
)

// Chunk types of mtmd.
const (
	chunkText  = 0
	chunkImage = 1
)

// projector is an mtmd context with the text model whose vocabulary it uses. It is not safe for
// concurrent use: a second thread in the same context crashes the process.
type projector struct {
	lib  *Library
	c    *mtmdCalls
	ptr  cMtmd
	text *textModel
}

// loadProjector loads a projector for a text model whose weights are never read.
func (l *Library) loadProjector(path, textPath string, threads int) (*projector, error) {
	c, err := l.mtmd()
	if err != nil {
		return nil, err
	}
	text, err := l.loadText(textPath, false, 0)
	if err != nil {
		return nil, err
	}
	p := c.defaults()
	// A warm-up would encode a picture of full size before the Encoder is ready.
	p.useGPU, p.printTimings, p.warmup, p.nThreads = 0, 0, 0, int32(threads)
	if l.onGPU() {
		p.useGPU = 1
	}
	mark := l.log.mark()
	m := c.open(path, text.ptr, p)
	if m == 0 {
		text.free()
		return nil, fmt.Errorf("llama: projector %s did not load beside text model %s: %s; is --mmproj the projector, and made for the model of --model?",
			path, textPath, l.log.explain(mark))
	}
	pr := &projector{lib: l, c: c, ptr: m, text: text}
	if !c.vision(m) {
		pr.free()
		return nil, fmt.Errorf("llama: projector %s takes no pictures", path)
	}
	return pr, nil
}

func (p *projector) free() {
	p.c.free(p.ptr)
	p.text.free()
}

// chunks is a picture as mtmd has cut it: text and image chunks in prompt order. A projector that
// tiles makes several image chunks, and what stands between them is text of its own.
type chunks struct {
	p   *projector
	ptr cChunks
}

func (c chunks) free() { c.p.c.chunksFree(c.ptr) }

// cut runs the preprocessing of mtmd on a picture. Without pixels the result has the same layout but
// cannot be encoded. The caller frees the result.
func (p *projector) cut(width, height int, rgb []byte) (chunks, error) {
	bm := p.c.bitmapNew(uint32(width), uint32(height), unsafe.SliceData(rgb))
	runtime.KeepAlive(rgb)
	if bm == 0 {
		return chunks{}, fmt.Errorf("llama: no bitmap for a picture of %dx%d", width, height)
	}
	defer p.c.bitmapFree(bm)
	var pin runtime.Pinner
	defer pin.Unpin()
	// The prompt is the picture and nothing else; the text that comes out is what the projector puts
	// round every picture.
	marker := cString(mediaMarker)
	pin.Pin(&marker[0])
	in := &cInputText{text: &marker[0], length: uint64(len(mediaMarker)), parseSpecial: true}
	out := chunks{p: p, ptr: p.c.chunksNew()}
	mark := p.lib.log.mark()
	if code := p.c.tokenize(p.ptr, out.ptr, in, &bm, 1); code != 0 {
		out.free()
		return chunks{}, fmt.Errorf("llama: the projector refuses a picture of %dx%d (code %d): %s", width, height, code, p.lib.log.explain(mark))
	}
	return out, nil
}

// layout returns the layout of any picture of a size.
func (p *projector) layout(width, height int) (embedding.Layout, error) {
	c, err := p.cut(width, height, nil)
	if err != nil {
		return embedding.Layout{}, err
	}
	defer c.free()
	return c.layout()
}

// layout copies the layout of c out of native memory.
func (c chunks) layout() (embedding.Layout, error) {
	calls, n := c.p.c, c.p.c.chunksLen(c.ptr)
	parts := make([]embedding.Part, 0, n)
	for i := range n {
		k := calls.chunksGet(c.ptr, i)
		switch typ := calls.chunkType(k); typ {
		case chunkText:
			var n uint64
			toks := calls.chunkText(k, &n)
			parts = append(parts, embedding.Part{Tokens: append([]int32(nil), unsafe.Slice(toks, n)...)})
		case chunkImage:
			parts = append(parts, c.rowPart(k))
		default:
			return embedding.Layout{}, fmt.Errorf("llama: the projector made a chunk of unknown type %d", typ)
		}
	}
	l := embedding.Layout{Parts: parts}
	if l.Rows() == 0 {
		return l, errors.New("llama: the projector made no rows")
	}
	return l, nil
}

func (c chunks) rowPart(k cChunk) embedding.Part {
	calls := c.p.c
	part := embedding.Part{
		Rows:      int(calls.chunkTokens(k)),
		Positions: int(calls.chunkNPos(k)),
		NonCausal: calls.nonCausal(c.p.ptr, k),
	}
	if !calls.useMRoPE(c.p.ptr) || part.Rows == 0 {
		return part
	}
	pos := make([]cPos, part.Rows)
	calls.positions(calls.chunkImage(k), 0, &pos[0])
	part.MRoPE = make([]embedding.MRoPE, part.Rows)
	for i, q := range pos {
		part.MRoPE[i] = embedding.MRoPE{T: q.t, Y: q.y, X: q.x, Z: q.z}
	}
	return part
}

// encode writes the rows of all image chunks, one after the other, to dst, which has exactly the
// room for them.
func (c chunks) encode(dst []byte) error {
	calls := c.p.c
	for i := range calls.chunksLen(c.ptr) {
		k := calls.chunksGet(c.ptr, i)
		if calls.chunkType(k) != chunkImage {
			continue
		}
		mark := c.p.lib.log.mark()
		if code := calls.encodeChunk(c.p.ptr, k); code != 0 {
			return fmt.Errorf("llama: encoding failed (code %d): %s", code, c.p.lib.log.explain(mark))
		}
		rows := calls.outputRows(c.p.ptr)
		if rows == nil {
			return errors.New("llama: the projector gave no rows")
		}
		// Both architectures that the library is built for are little endian, as objects are.
		b := unsafe.Slice((*byte)(unsafe.Pointer(rows)), int(calls.chunkTokens(k))*c.p.text.cols*4)
		if err := embedding.CheckFinite(b, embedding.Float32); err != nil {
			return fmt.Errorf("llama: chunk %d of the picture: %w; the projector file is broken", i, err)
		}
		dst = dst[copy(dst, b):]
	}
	return nil
}

// checkPixels refuses what native code would misread.
func checkPixels(px media.Pixels) error {
	if err := checkSize(px.Width, px.Height); err != nil {
		return err
	}
	if want := px.Width * px.Height * 3; len(px.RGB) != want {
		return fmt.Errorf("llama: a picture of %dx%d has %d bytes of pixels, want %d", px.Width, px.Height, len(px.RGB), want)
	}
	return nil
}

// maxPixels bounds a picture. Native code ends the process when its copies of one do not fit into
// memory.
const maxPixels = 1 << 26

func checkSize(width, height int) error {
	if width < 1 || height < 1 || width > maxPixels || height > maxPixels/width {
		return fmt.Errorf("llama: a picture of %dx%d: want at least 1x1 and at most %d pixels", width, height, maxPixels)
	}
	return nil
}
