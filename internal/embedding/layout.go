// SPDX-License-Identifier: Apache-2.0

package embedding

// Layout says how the rows of one image enter a prompt: parts in prompt order, each either text
// tokens that the projector puts round the image or a run of rows. It lets a Prefill worker use an
// embedding without any image processing.
type Layout struct {
	Parts []Part `json:"parts"`
}

// Part is one run of a layout. Exactly one of Tokens and Rows is set.
type Part struct {
	Tokens []int32 `json:"tokens,omitempty"` // text part: token ids
	Rows   int     `json:"rows,omitempty"`   // row part: number of rows, taken in order from the payload
	// Positions is how far a row part moves the position of what follows. With M-RoPE it differs
	// from Rows.
	Positions int `json:"positions,omitempty"`
	// NonCausal says that the rows of this part attend to each other in both directions.
	NonCausal bool `json:"non_causal,omitempty"`
	// MRoPE holds one position per row, relative to the start of the part, for models with
	// multi-dimensional rotary positions; nil for all others.
	MRoPE []MRoPE `json:"mrope,omitempty"`
}

// MRoPE is the position of one row in time, height and width; Z is the fourth plane that the
// library passes through.
type MRoPE struct{ T, Y, X, Z uint32 }

// Rows returns the number of embedding rows in the layout.
func (l Layout) Rows() int {
	n := 0
	for _, p := range l.Parts {
		n += p.Rows
	}
	return n
}

// Positions returns how many positions of the context the layout takes up in the prompt: one per
// token, and Positions of each row part.
func (l Layout) Positions() int {
	n := 0
	for _, p := range l.Parts {
		n += len(p.Tokens) + p.Positions
	}
	return n
}

// KVCells returns how many cells of the KV cache the layout fills: one per token and one per row.
func (l Layout) KVCells() int {
	n := 0
	for _, p := range l.Parts {
		n += len(p.Tokens) + p.Rows
	}
	return n
}
