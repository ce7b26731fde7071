// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math"

	"afterimage/internal/gguf"
)

// stream is an endless sequence of random numbers that can be read at any index (SplitMix64). Its
// value is the seed.
type stream uint64

func (s stream) at(i uint64) uint64 {
	z := uint64(s) + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// normal returns a number with mean 0, deviation 1 and a bell-like distribution: the sum of four
// uniform ones. Every step but the last product is exact in float32, so all machines agree.
func (s stream) normal(i uint64) float32 {
	u := s.at(i)
	sum := float32(u&0xffff) + float32(u>>16&0xffff) + float32(u>>32&0xffff) + float32(u>>48)
	return (sum/65536 - 2) * 1.7320508
}

// builder collects the tensors of one file. Each random tensor takes the numbers that follow those
// of the tensor before it, so the order of calls is part of what a seed means.
type builder struct {
	gguf.Writer
	rand   stream
	used   uint64    // numbers taken so far
	matrix gguf.Type // how matrices are stored; vectors are always F32
}

// random adds a tensor of values base + dev x normal.
func (b *builder) random(name string, typ gguf.Type, base, dev float32, dims ...int) {
	first, n := b.used, uint64(1)
	for _, d := range dims {
		n *= uint64(d)
	}
	b.used += n
	b.Add(name, typ, func(dst []float32, off int) {
		at := first + uint64(off)
		for i := range dst {
			// The conversion keeps compilers from fusing product and sum, which rounds differently.
			dst[i] = base + float32(dev*b.rand.normal(at+uint64(i)))
		}
	}, dims...)
}

// mat adds a matrix that multiplies the deviation of what passes through it by about gain. All
// dimensions but the last are summed over.
func (b *builder) mat(name string, gain float64, dims ...int) {
	fanIn := 1
	for _, d := range dims[:len(dims)-1] {
		fanIn *= d
	}
	b.random(name, b.matrix, 0, float32(gain/math.Sqrt(float64(fanIn))), dims...)
}

// vec adds a vector, or a table that is added like one.
func (b *builder) vec(name string, base, dev float32, dims ...int) {
	b.random(name, gguf.F32, base, dev, dims...)
}

// norm adds the weight and the bias of a layer normalisation.
func (b *builder) norm(name string, n int) {
	b.vec(name+".weight", 1, 0.1, n)
	b.bias(name, n)
}

// bias adds a small bias.
func (b *builder) bias(name string, n int) { b.vec(name+".bias", 0, 0.02, n) }

// linear adds a matrix and its bias.
func (b *builder) linear(name string, gain float64, in, out int) {
	b.mat(name+".weight", gain, in, out)
	b.bias(name, out)
}
