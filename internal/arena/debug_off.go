// SPDX-License-Identifier: Apache-2.0

//go:build !arenadebug

package arena

// Without the debug tag all of this is empty, and compiled away.

type (
	trace   struct{}
	tracker struct{}
)

func (*trace) add(string)      {}
func (b *Buf) history() string { return "" }

func (*tracker) add(*Buf)                        {}
func (*tracker) drop(*Buf)                       {}
func (*tracker) holders() string                 { return "" }
func (*tracker) list() []Holder                  { return nil }
func (*tracker) poison([]byte, int64, int64)     {}
func (*tracker) checkFreed([]byte, int64, int64) {}
