// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"
	"unsafe"

	"afterimage/internal/gguf"
)

// projectorArch is general.architecture of every projector file.
const projectorArch = "clip"

// keySquare is the metadata key by which a projector asks for pictures of one fixed square size.
const keySquare = "afterimage.square"

// openTextHeader reads the header of a text model and refuses anything else.
func openTextHeader(path string) (*gguf.File, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("llama: text model: %w", err)
	}
	arch, ok := f.String("general.architecture")
	if !ok {
		return nil, fmt.Errorf("llama: text model %s has no general.architecture", path)
	}
	if arch == projectorArch {
		return nil, fmt.Errorf("llama: text model %s is a projector (general.architecture is %q): are --model and --mmproj swapped?", path, arch)
	}
	return f, nil
}

// openProjectorHeader reads the header of a projector and refuses anything else.
func openProjectorHeader(path string) (*gguf.File, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("llama: projector: %w", err)
	}
	if arch, _ := f.String("general.architecture"); arch != projectorArch {
		return nil, fmt.Errorf("llama: projector %s is no projector (general.architecture is %q, want %q): is --mmproj the projector, and --model the text model?",
			path, arch, projectorArch)
	}
	return f, nil
}

// modelName is what people call a text model: general.name, or else the name of its file.
func modelName(f *gguf.File) string {
	if name, ok := f.String("general.name"); ok && name != "" {
		return name
	}
	return strings.TrimSuffix(filepath.Base(f.Path()), ".gguf")
}

// textModel is a loaded text model. Its methods may be called from any goroutine until free.
type textModel struct {
	lib   *Library
	ptr   cModel
	vocab cVocab
	vocN  int32
	cols  int // width of the rows it takes
	name  string
	// quantised: all large matrices are, so that the library computes one token and several alike.
	quantised bool
	layers    int // on a GPU
	allLayers int
}

// loadText loads a text model with so many layers on the GPU, if there is one; negative is all. Without weights
// it is only good for tokenizing and for mtmd.
func (l *Library) loadText(path string, weights bool, layers int) (*textModel, error) {
	f, err := openTextHeader(path)
	if err != nil {
		return nil, err
	}
	p := l.c.modelDefaults()
	all := blocks(f) + 1 // the output counts as a layer
	if layers = min(layers, all); layers < 0 {
		layers = all
	}
	if !l.onGPU() || !weights {
		layers = 0
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	list := l.deviceList(layers > 0)
	pin.Pin(&list[0])
	p.devices, p.nGPULayers = uintptr(unsafe.Pointer(&list[0])), int32(layers)
	p.loadMode = loadMmap
	if !weights {
		// With anything but plain reads, no_alloc runs into an assertion that ends the process.
		p.noAlloc, p.loadMode = 1, loadNone
	}
	mark := l.log.mark()
	m := l.c.modelLoad(path, p)
	if m == 0 {
		return nil, fmt.Errorf("llama: text model %s did not load: %s%s", path, l.log.explain(mark), l.fewerLayers(layers))
	}
	vocab := l.c.modelVocab(m)
	t := &textModel{lib: l, ptr: m, vocab: vocab, vocN: l.c.vocabSize(vocab), cols: int(l.c.modelRowWidth(m)), name: modelName(f), quantised: quantised(f), layers: layers, allLayers: all}
	if t.vocN <= 0 || t.cols <= 0 {
		t.free()
		return nil, fmt.Errorf("llama: text model %s has %d tokens and rows of %d values: not a model that can answer", path, t.vocN, t.cols)
	}
	return t, nil
}

// blocks returns how many layers a text model says that it has.
func blocks(f *gguf.File) int {
	arch, _ := f.String("general.architecture")
	n, _ := f.Uint(arch + ".block_count")
	return int(min(n, 1<<16))
}

// deviceList is what native code takes for the devices of a model: addresses, ended by 0. An empty one is the CPU.
func (l *Library) deviceList(gpu bool) []uintptr {
	var list []uintptr
	for _, d := range l.use {
		if gpu {
			list = append(list, d.ptr)
		}
	}
	return append(list, 0)
}

// fewerLayers is the mend of a failure that the memory of a GPU may be the cause of.
func (l *Library) fewerLayers(layers int) string {
	if layers == 0 {
		return ""
	}
	return fmt.Sprintf("; with %d layers on %s: if its memory is too small, lower engine.gpu_layers, or set engine.gpu to %s", layers, l.backend.Device, GPUOff)
}

func (t *textModel) free() { t.lib.c.modelFree(t.ptr) }

// tokenize turns text into token ids without adding any at the ends.
func (t *textModel) tokenize(text string, special bool) ([]int32, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("llama: text of %d bytes exceeds %d", len(text), maxText)
	}
	out := make([]int32, len(text)+8)
	for {
		n := t.lib.c.tokenize(t.vocab, unsafe.StringData(text), int32(len(text)), &out[0], int32(len(out)), false, special)
		runtime.KeepAlive(text)
		switch {
		case n >= 0:
			return out[:n:n], nil
		case int(-n) <= len(out): // neither success nor a request for more room
			return nil, fmt.Errorf("llama: the library cannot tokenize a text of %d bytes (code %d)", len(text), n)
		}
		out = make([]int32, -n)
	}
}

// longestPiece returns the most bytes of text that one token stands for.
func (t *textModel) longestPiece() int {
	longest := utf8.UTFMax // a token of its own may stand for any character that the model does not know
	buf := make([]byte, 1)
	for tok := range t.vocN {
		// Without enough room, the answer is the length that is missing, negated.
		n := int(t.lib.c.piece(t.vocab, tok, &buf[0], int32(len(buf)), 0, true))
		longest = max(longest, n, -n)
	}
	return longest
}

// maxText bounds the text of one call: native lengths are 32 bits, and no context holds as much.
const maxText = 64 << 20

// piece returns the bytes of a token. With special, control tokens show as their text.
func (t *textModel) piece(tok int32, special bool) []byte {
	if tok < 0 || tok >= t.vocN {
		return nil
	}
	buf := make([]byte, 32)
	n := t.lib.c.piece(t.vocab, tok, &buf[0], int32(len(buf)), 0, special)
	if n < 0 {
		buf = make([]byte, -n)
		n = t.lib.c.piece(t.vocab, tok, &buf[0], int32(len(buf)), 0, special)
	}
	return buf[:max(n, 0)]
}

// bytePtr turns an address that native code gave us into a pointer. The memory is never Go's.
func bytePtr(addr uintptr) *byte { return *(**byte)(unsafe.Pointer(&addr)) }
