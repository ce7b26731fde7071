// SPDX-License-Identifier: Apache-2.0

package vllmconsumer

import "slices"

// poolAlign is the granularity of the original's memory.
const poolAlign = 256

// base is the address of the first byte.
const base = 0x7f1a_8000_0000

// span is a range of the memory, with how many hold it.
type span struct{ off, size, refs int }

// pool is the memory of a shard: first fit, never moved.
type pool struct {
	mem  []byte
	held []*span // by offset
	used int
}

// take returns a range of n bytes, nil if there is none.
func (p *pool) take(n int) *span {
	n = (n + poolAlign - 1) / poolAlign * poolAlign
	at, end := 0, 0
	for ; at < len(p.held); at++ {
		if p.held[at].off-end >= n {
			break
		}
		end = p.held[at].off + p.held[at].size
	}
	if at == len(p.held) && len(p.mem)-end < n {
		return nil
	}
	s := &span{off: end, size: n, refs: 1}
	p.held = slices.Insert(p.held, at, s)
	p.used += n
	return s
}

// release drops one hold of s.
func (p *pool) release(s *span) {
	if s.refs--; s.refs == 0 {
		p.held = slices.DeleteFunc(p.held, func(x *span) bool { return x == s })
		p.used -= s.size
	}
}

func (p *pool) bytes(off, n int) []byte { return p.mem[off : off+n] }
