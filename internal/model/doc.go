// SPDX-License-Identifier: Apache-2.0

// Package model makes model pairs: a text model and the projector file that goes with it, both GGUF.
//
// WriteRandom makes pairs of random weights for tests and benchmarks. They run like real ones and
// say nothing; a seed gives the same bytes on every machine.
//
// WriteDemo makes a pair that speaks real words. The text model is SmolLM2-135M-Instruct; the vision
// tower is random but for its last layer, which maps what the tower makes of each of 4 x 4 picture
// cells to the embedding of the word for the cell's colour. Random features of a picture hold its
// colours well enough for a linear map to find them, so nothing but that map is learned. The pair
// knows colours, not objects. Verify measures how many cells it names right.
//
// A folder holds one pair: TextFile and ProjectorFile. The package runs no model by itself; Verify
// is given an engine.
package model

// The two files of a pair.
const (
	TextFile      = "text.gguf"
	ProjectorFile = "mmproj.gguf"
)
