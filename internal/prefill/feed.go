// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"

	"afterimage/internal/embedding"
	"afterimage/internal/engine"
)

// feeder gives a sequence its prompt.
type feeder struct {
	seq      engine.Sequence
	protocol embedding.Protocol
	toks     []int32 // text not fed yet: neighbouring texts go to the model in one run
}

// flush feeds the text that waits, of which more follows.
func (f *feeder) flush(ctx context.Context) error {
	if len(f.toks) == 0 {
		return nil
	}
	err := f.seq.PrefillTokens(ctx, f.toks, false)
	f.toks = nil
	return err
}

// item feeds the parts of one embedding; text behind its last rows waits.
func (f *feeder) item(ctx context.Context, h held) error {
	at, payload := 0, h.payload(f.protocol)
	for _, part := range h.meta.Layout.Parts {
		if part.Rows == 0 {
			f.toks = append(f.toks, part.Tokens...)
			continue
		}
		if err := f.flush(ctx); err != nil {
			return err
		}
		n := part.Rows * h.meta.Cols * h.meta.DType.Bytes()
		if err := f.seq.PrefillRows(ctx, part, payload[at:at+n]); err != nil {
			return err
		}
		at += n
	}
	return nil
}
