// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

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
	cfg   TextConfig
	clock *Clock
	slots chan struct{}
}

var _ engine.Text = (*Text)(nil)

// NewText returns a device that nothing has been given to do.
func NewText(cfg TextConfig) (*Text, error) {
	if cfg.Cols < 1 || cfg.DType.Bytes() == 0 || cfg.Context < 1 || cfg.Slots < 1 {
		return nil, fmt.Errorf("device: cannot model a context of %d, %d slots, rows of %d", cfg.Context, cfg.Slots, cfg.Cols)
	}
	clock, err := NewClock(cfg.ClockFile)
	return &Text{cfg: cfg, clock: clock, slots: make(chan struct{}, cfg.Slots)}, err
}

// Spec implements engine.Text.
func (t *Text) Spec() engine.TextSpec {
	return engine.TextSpec{
		Engine: Name, Model: t.cfg.Model, Cols: t.cfg.Cols, DType: t.cfg.DType,
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

// NewSequence implements engine.Text.
func (t *Text) NewSequence(ctx context.Context) (engine.Sequence, error) {
	select {
	case t.slots <- struct{}{}:
		return &sequence{t: t, logits: make([]float32, vocab)}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close implements engine.Text.
func (t *Text) Close() error { return t.clock.Close() }

// sequence holds a running hash of all that was fed.
type sequence struct {
	t       *Text
	n       int
	owed    int   // positions taken that the device has spent no time on; see TextConfig.Whole
	end     int64 // of the last piece of work, on the device's clock
	answer  int   // tokens fed one at a time with logits: the answer so far
	state   uint64
	logits  []float32
	closed  bool
	scratch [12]byte
}

// take makes room for n positions.
func (s *sequence) take(n int) error {
	if s.n+n > s.t.cfg.Context {
		return fmt.Errorf("%w: %d + %d of %d", engine.ErrContextFull, s.n, n, s.t.cfg.Context)
	}
	s.n += n
	s.owed += n
	return nil
}

// prefill spends the device time of what is owed, unless more of a whole prompt is to come.
func (s *sequence) prefill(ctx context.Context, last bool) (err error) {
	if s.t.cfg.Whole && !last {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.end, err = s.t.clock.Give(time.Duration(s.owed) * s.t.cfg.PrefillTime); err != nil {
		return err
	}
	s.owed = 0
	return s.t.clock.Await(ctx, s.end)
}

// step decodes one token together with whatever other sequences decode.
func (s *sequence) step(ctx context.Context) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.answer++
	s.owed = 0
	if s.end, err = s.t.clock.Step(s.end, s.t.cfg.DecodeTime); err != nil {
		return err
	}
	return s.t.clock.Await(ctx, s.end)
}

func (s *sequence) mix(v uint64) {
	binary.LittleEndian.PutUint64(s.scratch[:], v)
	s.state = xxh3.HashSeed(s.scratch[:8], s.state)
}

// PrefillTokens implements engine.Sequence.
func (s *sequence) PrefillTokens(ctx context.Context, toks []int32, logits bool) error {
	for _, t := range toks {
		if t < 0 || t >= vocab {
			return fmt.Errorf("device: token %d is outside the vocabulary of %d", t, vocab)
		}
	}
	if err := s.take(len(toks)); err != nil {
		return err
	}
	var err error
	if len(toks) == 1 && logits && s.owed == 1 {
		err = s.step(ctx)
	} else {
		err = s.prefill(ctx, logits)
	}
	if err != nil {
		return err
	}
	for _, t := range toks {
		s.mix(uint64(t))
	}
	if logits {
		s.vote()
	}
	return nil
}

// PrefillRows implements engine.Sequence.
func (s *sequence) PrefillRows(ctx context.Context, p embedding.Part, rows []byte) error {
	if want := p.Rows * s.t.cfg.Cols * s.t.cfg.DType.Bytes(); p.Rows < 1 || len(rows) != want {
		return fmt.Errorf("%w: %d bytes for %d rows of %d x %v", engine.ErrBadRows, len(rows), p.Rows, s.t.cfg.Cols, s.t.cfg.DType)
	}
	if err := embedding.CheckFinite(rows, s.t.cfg.DType); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrBadRows, err)
	}
	if err := s.take(p.Rows); err != nil {
		return err
	}
	if err := s.prefill(ctx, false); err != nil {
		return err
	}
	s.mix(xxh3.Hash(rows))
	return nil
}

// vote makes a lower-case letter or a space the clear winner, and the end once the answer is long
// enough.
func (s *sequence) vote() {
	clear(s.logits)
	next := int32('a' + s.state%26)
	if s.state>>32%6 == 0 {
		next = ' '
	}
	if s.t.cfg.AnswerLen > 0 && s.answer >= s.t.cfg.AnswerLen {
		next = endToken
	}
	s.logits[next] = 20
}

// Logits implements engine.Sequence.
func (s *sequence) Logits() []float32 { return s.logits }

// Len implements engine.Sequence.
func (s *sequence) Len() int { return s.n }

// Close implements engine.Sequence.
func (s *sequence) Close() {
	if !s.closed {
		s.closed = true
		<-s.t.slots
	}
}
