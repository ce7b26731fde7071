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
	// ErrNoGrammar: this engine cannot hold an answer to a grammar.
	ErrNoGrammar = errors.New("engine: answers cannot be held to a grammar here")
)

// EncoderSpec is what an Encoder announces.
type EncoderSpec struct {
	// Engine names library, version and back end. Rows are used only by a Text engine of the same
	// name, since instruction sets change bits.
	Engine  string
	Backend Backend
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
	Backend Backend
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
	// Constrain returns what holds an answer to a grammar of package grammar (ErrNoGrammar if the engine
	// cannot). The caller must Close it.
	Constrain(grammar string) (Constraint, error)
	// Runner returns what computes with the model. It is one and the same at every call.
	Runner() Runner
	Close() error
}

// Limits are those of a Runner.
type Limits struct {
	Sequences int // conversations in memory, numbered from 0
	Context   int // positions, and cells, of one sequence
	// Cells is the memory of all sequences together: a token or a row takes one. It is
	// Sequences x Context where each sequence has memory of its own.
	Cells int
	Batch int // most tokens or rows of one call
}

// Next is a token to append to a sequence that has pos positions.
type Next struct {
	Seq, Pos int
	Token    int32
}

// Runner computes with the sequences of a Text. Calls must not overlap; one cannot be interrupted. An
// error leaves the sequences that the call was about in no known state until Truncate has put them back.
//
// What a call computes for a sequence does not depend on the other sequences. It depends on how many
// tokens or rows the call takes only in that a call of one is computed apart from a call of several,
// which shows in the last bits.
type Runner interface {
	Limits() Limits
	// PrefillTokens appends 1 to Limits.Batch tokens to seq, which has pos positions. With logits,
	// Logits(0) is valid until the next call of PrefillTokens, PrefillRows or Decode.
	PrefillTokens(seq, pos int, toks []int32, logits bool) error
	// PrefillRows appends rows first to first+n of the part that begins at position pos. rows holds
	// these n alone, n x Cols elements of the model's dtype, which are checked for width, length and
	// finiteness before native code sees them (ErrBadRows). A NonCausal part must come in one call.
	PrefillRows(seq, pos int, part embedding.Part, first, n int, rows []byte) error
	// Decode appends a token to each of several sequences; Logits(i) belongs to next[i].
	Decode(next []Next) error
	// Logits returns one value per vocabulary entry, in memory that is valid as long.
	Logits(i int) []float32
	// Truncate keeps the first cells tokens and rows of seq, which end at position pos, and drops the
	// rest. It says whether they could be kept; else the sequence is empty.
	Truncate(seq, pos, cells int) bool
	// Copy makes dst equal to src.
	Copy(dst, src int)
}
