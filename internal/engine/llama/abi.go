// SPDX-License-Identifier: Apache-2.0

package llama

//lint:file-ignore U1000 fields that Go never touches hold their place in a C layout

import (
	"fmt"
	"strings"
)

// wantVersion is the llama.cpp version whose structs this file mirrors.
const wantVersion = "0.6.0-dev"

// mediaMarker stands for a picture in text that mtmd tokenizes.
const mediaMarker = "<__media__>"

// Pointers to native objects. They are numbers to Go: the collector must not look at them.
type (
	cModel   uintptr
	cContext uintptr
	cVocab   uintptr
	cMtmd    uintptr
	cChunks  uintptr
	cChunk   uintptr
	cBitmap  uintptr
)

// modelParams mirrors llama_model_params, 80 bytes. Structs cross the border by value, as the C API has
// them, so a field that is off by a byte is never noticed by the callee: see checkDefaults.
type modelParams struct {
	devices, buftOverrides                                     uintptr
	nGPULayers, splitMode, loadMode, lazyMode, mainGPU, _      int32
	tensorSplit, progressCallback, progressData, kvOverrides   uintptr
	vocabOnly, checkTensors, useExtraBufts, noHost, noAlloc, _ uint8
	_                                                          [2]uint8
}

// Values of modelParams.loadMode.
const (
	loadNone int32 = 0 // read tensors with plain reads
	loadMmap int32 = 1
)

// contextParams mirrors llama_context_params, 168 bytes.
type contextParams struct {
	nCtx, nBatch, nUbatch, nSeqMax, nRsSeq, nOutMax, nOutMaxSeq uint32
	nThreads, nThreadsBatch                                     int32
	ctxType, ropeScaling, pooling, attention, flashAttn         int32
	ropeBase, ropeScale, yarnExt, yarnAttn, yarnFast, yarnSlow  float32
	yarnOrig                                                    uint32
	defrag                                                      float32
	evalCallback, evalData                                      uintptr
	typeK, typeV                                                int32
	moeCacheSize                                                uint64
	abortCallback, abortData                                    uintptr
	embeddings, offloadKQV, noPerf, opOffload, swaFull, kvUni   uint8
	_                                                           [2]uint8
	samplers, nSamplers, ctxOther                               uintptr
}

// mtmdParams mirrors mtmd_context_params, 96 bytes.
type mtmdParams struct {
	useGPU                       uint8
	_                            [7]uint8
	device                       uintptr
	printTimings                 uint8
	_                            [3]uint8
	nThreads                     int32
	imageMarker, mediaMarker     uintptr
	flashAttn                    int32
	warmup                       uint8
	_                            [3]uint8
	imageMinTokens, imageMax     int32
	evalCallback, evalData       uintptr
	batchMaxTokens, _            int32
	progressCallback, progressUD uintptr
}

// cBatch mirrors llama_batch, 56 bytes. It holds tokens or rows, never both.
type cBatch struct {
	nTokens int32
	_       int32
	token   *int32
	rows    *float32
	pos     *int32 // one per entry; four planes (t, y, x, z) for rows of an M-RoPE model
	nSeqID  *int32
	seqID   **int32
	logits  *int8
}

// cInputText mirrors mtmd_input_text.
type cInputText struct {
	text         *byte
	length       uint64
	addSpecial   bool
	parseSpecial bool
	_            [6]byte
}

// cPos mirrors mtmd_decoder_pos, whose order of x and y is not that of the planes of a batch.
type cPos struct{ t, x, y, z uint32 }

// cTokenData mirrors llama_token_data.
type cTokenData struct {
	id       int32
	logit, p float32
}

// cTokenArray mirrors llama_token_data_array.
type cTokenArray struct {
	data     *cTokenData
	size     uint64
	selected int64
	sorted   bool
}

// cMessage mirrors llama_chat_message.
type cMessage struct{ role, content *byte }

// checkVersion refuses a library of another version before any struct crosses the border.
func checkVersion(dir, got string) error {
	if got == wantVersion {
		return nil
	}
	return fmt.Errorf("llama: %s is llama.cpp %q, and this program is built for the structs of %q only; run `make deps`, name the folder that it made, or build that version", dir, got, wantVersion)
}

// mismatch collects default values that are not as the pinned version has them.
type mismatch []string

func (m *mismatch) check(name string, got, want any) {
	if got != want {
		*m = append(*m, fmt.Sprintf("%s is %v, want %v", name, got, want))
	}
}

func (m mismatch) err(dir, what string) error {
	if m == nil {
		return nil
	}
	return fmt.Errorf("llama: %s does not have the %s of llama.cpp %s (%s): it is another build, which would misread every argument; run `make deps`",
		dir, what, wantVersion, strings.Join(m, ", "))
}

// checkDefaults compares values at both ends and in the middle of each struct. A layout with one field
// more or less shifts at least one of them, even where the sizes are equal.
func checkDefaults(dir string, m modelParams, c contextParams) error {
	var bad mismatch
	bad.check("n_ctx", c.nCtx, uint32(512))
	bad.check("n_batch", c.nBatch, uint32(2048))
	bad.check("flash_attn_type", c.flashAttn, int32(-1))
	bad.check("type_k", c.typeK, int32(1))
	bad.check("type_v", c.typeV, int32(1))
	bad.check("offload_kqv", c.offloadKQV, uint8(1))
	bad.check("ctx_other", c.ctxOther, uintptr(0))
	if err := bad.err(dir, "llama_context_params"); err != nil {
		return err
	}
	bad.check("load_mode", m.loadMode, int32(-1))
	bad.check("use_extra_bufts", m.useExtraBufts, uint8(1))
	bad.check("vocab_only", m.vocabOnly, uint8(0))
	bad.check("no_alloc", m.noAlloc, uint8(0))
	bad.check("kv_overrides", m.kvOverrides, uintptr(0))
	return bad.err(dir, "llama_model_params")
}

// checkMtmdDefaults is checkDefaults for libmtmd. marker is the text at mtmdParams.mediaMarker.
func checkMtmdDefaults(dir string, p mtmdParams, marker string) error {
	var bad mismatch
	bad.check("media_marker", marker, mediaMarker)
	bad.check("image_marker", p.imageMarker, uintptr(0))
	bad.check("flash_attn_type", p.flashAttn, int32(-1))
	bad.check("image_min_tokens", p.imageMinTokens, int32(-1))
	bad.check("image_max_tokens", p.imageMax, int32(-1))
	return bad.err(dir, "mtmd_context_params")
}
