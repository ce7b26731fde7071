// SPDX-License-Identifier: Apache-2.0

// Package engine defines the two interfaces behind which models run: Encoder turns pixels into rows,
// Text prefills tokens and rows and decodes. engine/llama implements both with llama.cpp;
// engine/device is a modelled accelerator.
package engine

import (
	"context"
	"errors"

	"afterimage/internal/embedding"
	"afterimage/internal/media"
)

var (
	// ErrContextFull: the sequence has no room for what it was asked to take.
	ErrContextFull = errors.New("engine: context is full")
	// ErrBadRows: rows whose size, width or values the model cannot take.
	ErrBadRows = errors.New("engine: unusable rows")
)

// EncoderSpec is what an Encoder announces.
type EncoderSpec struct {
	// Engine names library, version and back end. Rows are used only by a Text engine of the same
	// name, since instruction sets change bits.
	Engine string
	// Fingerprint covers all that computes the output: projector file, Engine, processor rules. It is
	// the encoder field of the namespace.
	Fingerprint string
	Model       string // human name of the model pair
	Cols        int
	DType       embedding.DType
	MaxRows     int // most rows that one picture of any size yields
	Processing  embedding.Processing
	Modelled    bool // true for a device that is modelled, not run
}

// Encoder turns pictures into rows. All methods may be called from any goroutine; implementations
// serialise what the native code cannot run side by side.
type Encoder interface {
	Spec() EncoderSpec
	// Layout returns the layout of any picture of width x height pixels (as Encode gets it). It never
	// looks at pixels, so that a Store hit needs no decoding, and is cheap from the second call on.
	Layout(ctx context.Context, width, height int) (embedding.Layout, error)
	// Encode writes Layout(px).Rows() x Cols elements to dst, whose length must be exact. It fails
	// with embedding.ErrNotFinite rather than write NaN or infinity. ctx is checked before the
	// native call, which cannot be interrupted.
	Encode(ctx context.Context, px media.Pixels, dst []byte) error
	Close() error
}

// TextSpec describes a text model.
type TextSpec struct {
	Engine  string // as EncoderSpec.Engine
	Model   string
	Cols    int // width of the rows it takes
	DType   embedding.DType
	Context int // positions of one sequence
	Vocab   int
	// PieceBytes is the most text, in bytes, that one token stands for; 0 when it is not known.
	PieceBytes int
	Modelled   bool
}

// Message is one turn of a conversation whose content is plain text.
type Message struct{ Role, Content string }

// Text runs a text model. All methods may be called from any goroutine.
type Text interface {
	Spec() TextSpec
	// Tokenize turns text into token ids. With special, the text of control tokens becomes those
	// tokens; without, it stays text, as a user's words must.
	Tokenize(text string, special bool) ([]int32, error)
	// Begin returns the tokens that stand before every prompt: the model's BOS where its vocabulary
	// asks for one (add_bos_token), else nothing.
	Begin() []int32
	// Piece returns the bytes of a token, which may be part of a UTF-8 character. Control tokens are
	// empty.
	Piece(tok int32) []byte
	// EndOfGeneration says whether tok ends an answer.
	EndOfGeneration(tok int32) bool
	// Prompt renders a conversation with the chat template of the model, ending where the
	// assistant's answer begins.
	Prompt(msgs []Message) (string, error)
	// NewSequence waits for a free sequence. The caller must Close it.
	NewSequence(ctx context.Context) (Sequence, error)
	Close() error
}

// Sequence is one conversation in the model's memory. Its methods are called from one goroutine.
type Sequence interface {
	// PrefillTokens appends tokens. With logits, Logits is valid afterwards. Without, the last of them
	// may wait for the calls that follow, so that the result does not depend on how text is cut.
	PrefillTokens(ctx context.Context, toks []int32, logits bool) error
	// PrefillRows appends the rows of one row part: part.Rows x Cols elements of the model's dtype.
	// Width, length and finiteness are checked before native code sees them (ErrBadRows).
	PrefillRows(ctx context.Context, part embedding.Part, rows []byte) error
	// Logits returns one value per vocabulary entry, valid until the next call.
	Logits() []float32
	// Len returns the positions taken so far.
	Len() int
	Close()
}
