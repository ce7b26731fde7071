// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
)

// ErrClosed: the engine was closed.
var ErrClosed = errors.New("llama: engine is closed")

const (
	defaultContext = 4096
	defaultSlots   = 2
	defaultBatch   = 512
)

// TextConfig says how a text model is run.
type TextConfig struct {
	Model string // path of the GGUF file
	// Template is used instead of the model's own chat template: Jinja, or the name of one of
	// llama.cpp's; "" takes the model's.
	Template string
	// ContextTokens is the size of a sequence; 0 means 4096, or less when the model was trained on less.
	ContextTokens int
	// Slots is how many sequences live at once; 0 means 2. Each has ContextTokens cells of its own.
	Slots int
	// Threads per native call; 0 means 1, which leaves the other cores to other roles.
	Threads int
	// GPULayers is how many layers are on the GPU, if the Library found one; negative is all of them.
	GPULayers int
	// BatchTokens is the largest native call; 0 means 512. A non-causal row part must fit into one.
	BatchTokens int
}

func (c *TextConfig) validate() error {
	for _, f := range []struct {
		name       string
		value, max int
	}{
		{"context tokens", c.ContextTokens, 1 << 22},
		{"slots", c.Slots, 1 << 10},
		{"threads", c.Threads, 512},
		{"batch tokens", c.BatchTokens, 1 << 16},
	} {
		if f.value < 0 || f.value > f.max {
			return fmt.Errorf("llama: %d %s, want 0 to %d", f.value, f.name, f.max)
		}
	}
	return nil
}

// setDefaults fills in what is zero. trained is the context length of the model's training, 0 when
// unknown.
func (c *TextConfig) setDefaults(trained int) {
	if c.ContextTokens == 0 {
		c.ContextTokens = defaultContext
		if trained > 0 {
			c.ContextTokens = min(defaultContext, trained)
		}
	}
	c.Slots = cmp.Or(c.Slots, defaultSlots)
	c.Threads = cmp.Or(c.Threads, 1)
	c.BatchTokens = cmp.Or(c.BatchTokens, defaultBatch)
}

// Text runs a text model with libllama alone. It implements engine.Text. The memory of all sequences is
// taken at the start, so that a process that does not fit into memory fails before it is ready.
type Text struct {
	spec   engine.TextSpec
	model  *textModel
	tmpl   *template
	runner *runner

	mu     sync.RWMutex // held for reading during calls into the model; for writing to free it
	closed bool
}

var _ engine.Text = (*Text)(nil)

// NewText loads a text model and makes its sequences.
func NewText(lib *Library, cfg TextConfig) (*Text, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	model, err := lib.loadText(cfg.Model, true, cfg.GPULayers)
	if err != nil {
		return nil, err
	}
	cfg.setDefaults(int(lib.c.modelTrainCtx(model.ptr)))
	s, err := newSlot(model, cfg)
	if err != nil {
		model.free()
		return nil, err
	}
	tmpl, err := newTemplate(model, cfg.Template)
	if err != nil {
		s.free()
		model.free()
		return nil, err
	}
	t := &Text{model: model, tmpl: tmpl}
	t.runner = newRunner(t, s)
	on := lib.Backend()
	if on.Device != "" {
		on.Layers, on.AllLayers = model.layers, model.allLayers
	}
	t.spec = engine.TextSpec{
		Engine:  lib.Identity(),
		Backend: on,
		Model:   model.name,
		Cols:    model.cols,
		DType:   embedding.Float32,
		Context: cfg.ContextTokens,
		Vocab:   int(model.vocN),

		PieceBytes: model.longestPiece(),
	}
	return t, nil
}

// Spec describes the model.
func (t *Text) Spec() engine.TextSpec { return t.spec }

// enter admits a call into the model until leave, unless the engine is closed.
func (t *Text) enter() error {
	t.mu.RLock()
	if t.closed {
		t.mu.RUnlock()
		return ErrClosed
	}
	return nil
}

func (t *Text) leave() { t.mu.RUnlock() }

// Tokenize turns text into token ids; it never adds any at the ends.
func (t *Text) Tokenize(text string, special bool) ([]int32, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.leave()
	return t.model.tokenize(text, special)
}

// Piece returns the bytes of a token; nil for a control token and for an id that is no token.
func (t *Text) Piece(tok int32) []byte {
	if t.enter() != nil {
		return nil
	}
	defer t.leave()
	return t.model.piece(tok, false)
}

// EndOfGeneration says whether tok ends an answer. An id that is no token does.
func (t *Text) EndOfGeneration(tok int32) bool {
	if t.enter() != nil {
		return true
	}
	defer t.leave()
	if tok < 0 || tok >= t.model.vocN {
		return true
	}
	return t.model.lib.c.vocabIsEOG(t.model.vocab, tok)
}

// Begin returns the tokens that stand before every prompt, as a slice of the caller's own.
func (t *Text) Begin() []int32 { return slices.Clone(t.tmpl.begin) }

// Prompt renders a conversation with the model's chat template, without what Begin returns.
func (t *Text) Prompt(msgs []engine.Message) (string, error) {
	if err := t.enter(); err != nil {
		return "", err
	}
	defer t.leave()
	return t.tmpl.render(t.model.lib, msgs)
}

// Runner implements engine.Text.
func (t *Text) Runner() engine.Runner { return t.runner }

// Close frees the model once a native call in work has ended. Calls after it fail.
func (t *Text) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	t.runner.slot.free()
	t.model.free()
	return nil
}
