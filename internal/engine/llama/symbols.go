// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"fmt"
	"strings"

	"github.com/ebitengine/purego"
)

// llamaCalls are the functions of libllama and libggml.
type llamaCalls struct {
	version        func() string
	backendInit    func()
	backendLoad    func(path string) uintptr
	deviceCount    func() uint64
	deviceGet      func(uint64) uintptr
	deviceType     func(uintptr) int32
	deviceName     func(uintptr) *byte
	deviceAbout    func(uintptr) *byte
	deviceMemory   func(dev uintptr, free, total *uint64)
	modelDefaults  func() modelParams
	modelLoad      func(path string, p modelParams) cModel
	modelFree      func(cModel)
	modelVocab     func(cModel) cVocab
	modelRowWidth  func(cModel) int32
	modelTrainCtx  func(cModel) int32
	modelRopeType  func(cModel) int32
	modelTemplate  func(m cModel, name *byte) *byte
	vocabSize      func(cVocab) int32
	vocabAddBOS    func(cVocab) bool
	vocabBOS       func(cVocab) int32
	vocabEOS       func(cVocab) int32
	vocabText      func(v cVocab, tok int32) *byte
	vocabIsEOG     func(v cVocab, tok int32) bool
	tokenize       func(v cVocab, text *byte, n int32, out *int32, room int32, addSpecial, parseSpecial bool) int32
	piece          func(v cVocab, tok int32, buf *byte, n, lstrip int32, special bool) int32
	applyTemplate  func(tmpl *byte, msgs *cMessage, n uint64, assistant bool, buf *byte, room int32) int32
	contextDefault func() contextParams
	contextNew     func(cModel, contextParams) cContext
	contextFree    func(cContext)
	setCausal      func(cContext, bool)
	memory         func(cContext) uintptr
	memoryRemove   func(mem uintptr, seq, from, to int32) bool
	memoryCopy     func(mem uintptr, src, dst, from, to int32)
	memoryLast     func(mem uintptr, seq int32) int32
	stateSize      func(c cContext, seq int32) uint64
	stateGet       func(c cContext, dst *byte, n uint64, seq int32) uint64
	stateSet       func(c cContext, src *byte, n uint64, seq int32) uint64
	decode         func(cContext, cBatch) int32
	logits         func(c cContext, i int32) *float32
	grammarNew     func(v cVocab, grammar, root string) uintptr
	samplerApply   func(s uintptr, a *cTokenArray)
	samplerAccept  func(s uintptr, tok int32)
	samplerFree    func(s uintptr)
}

func (c *llamaCalls) table() []symbol {
	return []symbol{
		{"llama_version", &c.version},
		{"llama_backend_init", &c.backendInit},
		{"ggml_backend_load", &c.backendLoad},
		{"ggml_backend_dev_count", &c.deviceCount},
		{"ggml_backend_dev_get", &c.deviceGet},
		{"ggml_backend_dev_type", &c.deviceType},
		{"ggml_backend_dev_name", &c.deviceName},
		{"ggml_backend_dev_description", &c.deviceAbout},
		{"ggml_backend_dev_memory", &c.deviceMemory},
		{"llama_model_default_params", &c.modelDefaults},
		{"llama_model_load_from_file", &c.modelLoad},
		{"llama_model_free", &c.modelFree},
		{"llama_model_get_vocab", &c.modelVocab},
		{"llama_model_n_embd_inp", &c.modelRowWidth},
		{"llama_model_n_ctx_train", &c.modelTrainCtx},
		{"llama_model_rope_type", &c.modelRopeType},
		{"llama_model_chat_template", &c.modelTemplate},
		{"llama_vocab_n_tokens", &c.vocabSize},
		{"llama_vocab_get_add_bos", &c.vocabAddBOS},
		{"llama_vocab_bos", &c.vocabBOS},
		{"llama_vocab_eos", &c.vocabEOS},
		{"llama_vocab_get_text", &c.vocabText},
		{"llama_vocab_is_eog", &c.vocabIsEOG},
		{"llama_tokenize", &c.tokenize},
		{"llama_token_to_piece", &c.piece},
		{"llama_chat_apply_template", &c.applyTemplate},
		{"llama_context_default_params", &c.contextDefault},
		{"llama_init_from_model", &c.contextNew},
		{"llama_free", &c.contextFree},
		{"llama_set_causal_attn", &c.setCausal},
		{"llama_get_memory", &c.memory},
		{"llama_memory_seq_rm", &c.memoryRemove},
		{"llama_memory_seq_cp", &c.memoryCopy},
		{"llama_memory_seq_pos_max", &c.memoryLast},
		{"llama_state_seq_get_size", &c.stateSize},
		{"llama_state_seq_get_data", &c.stateGet},
		{"llama_state_seq_set_data", &c.stateSet},
		{"llama_decode", &c.decode},
		{"llama_get_logits_ith", &c.logits},
		{"llama_sampler_init_grammar", &c.grammarNew},
		{"llama_sampler_apply", &c.samplerApply},
		{"llama_sampler_accept", &c.samplerAccept},
		{"llama_sampler_free", &c.samplerFree},
	}
}

// mtmdCalls are the functions of libmtmd.
type mtmdCalls struct {
	defaults     func() mtmdParams
	open         func(path string, text cModel, p mtmdParams) cMtmd
	free         func(cMtmd)
	useMRoPE     func(cMtmd) bool
	nonCausal    func(cMtmd, cChunk) bool
	vision       func(cMtmd) bool
	bitmapNew    func(nx, ny uint32, rgb *byte) cBitmap
	bitmapFree   func(cBitmap)
	chunksNew    func() cChunks
	chunksFree   func(cChunks)
	chunksLen    func(cChunks) uint64
	chunksGet    func(cChunks, uint64) cChunk
	chunkType    func(cChunk) int32
	chunkText    func(cChunk, *uint64) *int32
	chunkTokens  func(cChunk) uint64
	chunkNPos    func(cChunk) int32
	chunkImage   func(cChunk) uintptr
	positions    func(image uintptr, pos0 int32, out *cPos)
	tokenize     func(m cMtmd, out cChunks, in *cInputText, bitmaps *cBitmap, n uint64) int32
	encodeChunk  func(cMtmd, cChunk) int32
	outputRows   func(cMtmd) *float32
	setHelperLog func(callback, data uintptr)
	setLog       func(callback, data uintptr)
}

func (c *mtmdCalls) table() []symbol {
	return []symbol{
		{"mtmd_context_params_default", &c.defaults},
		{"mtmd_init_from_file", &c.open},
		{"mtmd_free", &c.free},
		{"mtmd_decode_use_mrope", &c.useMRoPE},
		{"mtmd_decode_use_non_causal", &c.nonCausal},
		{"mtmd_support_vision", &c.vision},
		{"mtmd_bitmap_init", &c.bitmapNew},
		{"mtmd_bitmap_free", &c.bitmapFree},
		{"mtmd_input_chunks_init", &c.chunksNew},
		{"mtmd_input_chunks_free", &c.chunksFree},
		{"mtmd_input_chunks_size", &c.chunksLen},
		{"mtmd_input_chunks_get", &c.chunksGet},
		{"mtmd_input_chunk_get_type", &c.chunkType},
		{"mtmd_input_chunk_get_tokens_text", &c.chunkText},
		{"mtmd_input_chunk_get_n_tokens", &c.chunkTokens},
		{"mtmd_input_chunk_get_n_pos", &c.chunkNPos},
		{"mtmd_input_chunk_get_tokens_image", &c.chunkImage},
		{"mtmd_helper_image_get_decoder_pos", &c.positions},
		{"mtmd_tokenize", &c.tokenize},
		{"mtmd_encode_chunk", &c.encodeChunk},
		{"mtmd_get_output_embd", &c.outputRows},
		{"mtmd_helper_log_set", &c.setHelperLog},
		{"mtmd_log_set", &c.setLog},
	}
}

// symbol pairs a C name with the Go function variable that is to call it.
type symbol struct {
	name string
	fn   any
}

// open loads a shared object and points every function of table at it. The object stays mapped for
// the life of the process: a back end's threads may still run in it.
func open(path string, table []symbol) (handle uintptr, err error) {
	handle, err = purego.Dlopen(path, purego.RTLD_LAZY|purego.RTLD_LOCAL)
	if err != nil {
		return 0, fmt.Errorf("llama: cannot load %s: %w; run `make deps`", path, err)
	}
	var missing []string
	for _, s := range table {
		addr, err := purego.Dlsym(handle, s.name)
		if err != nil {
			missing = append(missing, s.name)
			continue
		}
		purego.RegisterFunc(s.fn, addr)
	}
	if missing != nil {
		return 0, fmt.Errorf("llama: %s lacks %s (%d of %d functions): it is not the library of llama.cpp %s; run `make deps`",
			path, strings.Join(missing[:min(3, len(missing))], ", "), len(missing), len(table), wantVersion)
	}
	return handle, nil
}
