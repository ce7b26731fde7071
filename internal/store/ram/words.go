// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"fmt"
	"unsafe"

	"afterimage/internal/arena"
)

// newWords makes zeroed memory of n bytes that can be shown to other processes in every build. The words
// in it are used through atomics only.
func newWords[W uint32 | uint64](name string, n int64) (words[W], error) {
	mem, err := arena.New(arena.Config{Name: "afterimage-" + name, Bytes: n, Mapped: true})
	if err != nil {
		return words[W]{}, fmt.Errorf("ram: %s: %w", name, err)
	}
	buf, err := mem.Reserve(int(n))
	if err != nil {
		return words[W]{}, errors.Join(err, mem.Close())
	}
	return words[W]{w: wordsOf[W](buf), mem: mem, buf: buf}, nil
}

// words is memory that processes share: own memory, or a read-only view of another's.
type words[W uint32 | uint64] struct {
	w   []W
	mem *arena.Arena // nil for a view
	buf *arena.Buf
}

// viewWords reads all of m, which stays mapped until close.
func viewWords[W uint32 | uint64](m *arena.Mapping) (words[W], error) {
	buf, err := m.Buf(0, m.Size(), nil)
	if err != nil {
		return words[W]{}, err
	}
	return words[W]{w: wordsOf[W](buf), buf: buf}, nil
}

// wordsOf views memory, which is aligned to pages, as words.
func wordsOf[W uint32 | uint64](b *arena.Buf) []W {
	return unsafe.Slice((*W)(unsafe.Pointer(unsafe.SliceData(b.Bytes()))), b.Len()/int(unsafe.Sizeof(W(0))))
}

// close gives the memory back; the words are not used again.
func (w *words[W]) close() error {
	w.buf.Release()
	if w.mem != nil {
		return w.mem.Close()
	}
	return nil
}
