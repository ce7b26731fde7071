// SPDX-License-Identifier: Apache-2.0

package embedding_test

import (
	"errors"
	"math"
	"testing"

	"afterimage/internal/embedding"
)

func TestLayoutCounts(t *testing.T) {
	l := sampleMeta.Layout
	if l.Rows() != 4 || l.Positions() != 6 || l.KVCells() != 7 {
		t.Errorf("rows %d, positions %d, cells %d; want 4, 6, 7", l.Rows(), l.Positions(), l.KVCells())
	}
}

func TestLayoutValidate(t *testing.T) {
	f := func(ok bool, parts ...embedding.Part) {
		t.Helper()
		err := embedding.Layout{Parts: parts}.Validate()
		if ok && err != nil || !ok && !errors.Is(err, embedding.ErrMalformed) {
			t.Errorf("%+v: got %v", parts, err)
		}
	}
	row := embedding.Part{Rows: 1, Positions: 1}
	f(true, row)
	f(true, row, embedding.Part{Tokens: []int32{0, math.MaxInt32}}, row)
	f(true, embedding.Part{Rows: 2, MRoPE: make([]embedding.MRoPE, 2)})
	f(false)
	f(false, embedding.Part{Tokens: []int32{1}}) // no rows at all
	f(false, row, embedding.Part{})
	f(false, embedding.Part{Rows: 1, Tokens: []int32{1}})
	f(false, embedding.Part{Rows: -1}, row, row)
	f(false, embedding.Part{Rows: 1, Positions: -1})
	f(false, embedding.Part{Rows: 2, MRoPE: make([]embedding.MRoPE, 1)})
	f(false, row, embedding.Part{Tokens: []int32{-1}})
	f(false, row, embedding.Part{Tokens: []int32{1}, Positions: 1})
	f(false, row, embedding.Part{Tokens: []int32{1}, NonCausal: true})
	f(false, row, embedding.Part{Rows: math.MaxInt32})
	f(false, embedding.Part{Rows: 1, Positions: math.MaxInt32}, row)
	f(true, row, embedding.Part{Tokens: make([]int32, 1000)})
	f(false, row, embedding.Part{Tokens: make([]int32, 1100)})
	f(true, embedding.Part{Rows: 100}, embedding.Part{Tokens: make([]int32, 1100)})
}
