// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"strings"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
)

// TextConfig sets a modelled text model's shape and times.
type TextConfig struct {
	Model       string
	Cols        int
	DType       embedding.DType
	Context     int
	Slots       int           // sequences side by side
	Cells       int           // memory of all sequences, in positions; 0 gives each a whole context
	PrefillTime time.Duration // device time per prompt token or row
	DecodeTime  time.Duration // device time per decode step of all sequences together
	Whole       bool          // a prompt takes its device time in one piece, once all of it is there
	AnswerLen   int           // tokens after which the model ends its answer; 0 never
	ClockFile   string        // the device, if it has other users; see NewClock
}

// DefaultTextConfig fits DefaultEncoderConfig: 19.2 ms per decode step.
func DefaultTextConfig() TextConfig { return DefaultProfile().Text() }

// The vocabulary: one token per byte, then two control tokens.
const (
	startToken = 256
	endToken   = 257
	vocab      = 258
)

const (
	startText = "<|im_start|>"
	endText   = "<|im_end|>"
)

// Text is a modelled engine.Text. Its answer is a function of everything that it was fed, rows
// included, so that a wrong embedding shows as a wrong answer.
type Text struct {
	cfg    TextConfig
	clock  *Clock
	runner *runner
}

var _ engine.Text = (*Text)(nil)

// NewText returns a device that nothing has been given to do.
func NewText(cfg TextConfig) (*Text, error) {
	if cfg.Cols < 1 || cfg.DType.Bytes() == 0 || cfg.Context < 1 || cfg.Slots < 1 || cfg.Cells != 0 && cfg.Cells < cfg.Context {
		return nil, fmt.Errorf("device: cannot model a context of %d, %d slots, rows of %d", cfg.Context, cfg.Slots, cfg.Cols)
	}
	clock, err := NewClock(cfg.ClockFile)
	if err != nil {
		return nil, err
	}
	t := &Text{cfg: cfg, clock: clock}
	t.runner = newRunner(t)
	return t, nil
}

// Spec implements engine.Text.
func (t *Text) Spec() engine.TextSpec {
	return engine.TextSpec{
		Engine: Name, Backend: engine.Backend{Name: Name}, Model: t.cfg.Model, Cols: t.cfg.Cols, DType: t.cfg.DType,
		Context: t.cfg.Context, Vocab: vocab, PieceBytes: len(startText), Modelled: true,
	}
}

// Tokenize implements engine.Text.
func (t *Text) Tokenize(text string, special bool) ([]int32, error) {
	var toks []int32
	for text != "" {
		switch {
		case special && strings.HasPrefix(text, startText):
			toks, text = append(toks, startToken), text[len(startText):]
		case special && strings.HasPrefix(text, endText):
			toks, text = append(toks, endToken), text[len(endText):]
		default:
			toks, text = append(toks, int32(text[0])), text[1:]
		}
	}
	return toks, nil
}

// Begin implements engine.Text.
func (t *Text) Begin() []int32 { return nil }

// Piece implements engine.Text.
func (t *Text) Piece(tok int32) []byte {
	if tok < 0 || tok > 255 {
		return nil
	}
	return []byte{byte(tok)}
}

// EndOfGeneration implements engine.Text.
func (t *Text) EndOfGeneration(tok int32) bool { return tok == endToken }

// Prompt implements engine.Text with the ChatML template.
func (t *Text) Prompt(msgs []engine.Message) (string, error) {
	var b strings.Builder
	for _, m := range msgs {
		fmt.Fprintf(&b, "%s%s\n%s%s\n", startText, m.Role, m.Content, endText)
	}
	b.WriteString(startText + "assistant\n")
	return b.String(), nil
}

// Constrain implements engine.Text.
func (t *Text) Constrain(string) (engine.Constraint, error) { return nil, engine.ErrNoGrammar }

// Runner implements engine.Text.
func (t *Text) Runner() engine.Runner { return t.runner }

// Close implements engine.Text.
func (t *Text) Close() error { return t.clock.Close() }
