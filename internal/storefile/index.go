// SPDX-License-Identifier: Apache-2.0

package storefile

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/zeebo/xxh3"
)

// finish reads the index, whose magic has been read, and the trailer. It returns io.EOF when the file is
// whole and holds the records that were met, and nothing else.
func (r *Reader) finish() error {
	at := r.off - 4
	var head [indexHeadBytes]byte
	copy(head[:], magicIndex)
	if err := r.fill(head[4:]); err != nil {
		return err
	}
	count := binary.LittleEndian.Uint64(head[8:])
	if !r.skipped && count != r.count {
		return fmt.Errorf("%w: its index has %d records, the file %d", ErrBroken, count, r.count)
	}
	var whole, entries xxh3.Hasher
	_, _ = whole.Write(head[:])
	var b [indexEntryBytes]byte
	for range count {
		if err := r.fill(b[:]); err != nil {
			return err
		}
		_, _ = whole.Write(b[:])
		_, _ = entries.Write(b[:])
	}
	var end [trailerBytes]byte
	if err := r.fill(end[:]); err != nil {
		return err
	}
	t, err := parseTrailer(end[:])
	switch {
	case err != nil:
		return err
	case t.index != uint64(at) || t.count != count || t.sum != whole.Sum64():
		return fmt.Errorf("%w: its index does not match its trailer", ErrBroken)
	case !r.skipped && count > 0 && entries.Sum64() != r.sum.Sum64():
		return fmt.Errorf("%w: its index is of other records", ErrBroken)
	}
	return r.expectEnd()
}

// expectEnd returns io.EOF when nothing follows.
func (r *Reader) expectEnd() error {
	_, err := r.br.ReadByte()
	if err == nil {
		return fmt.Errorf("%w: bytes follow its trailer", ErrBroken)
	}
	return err
}

// behind returns where to go on behind a damaged record at byte off: at the next record of the index, or
// at the index itself. It needs a file that can be read at any place and a sound trailer.
func (r *Reader) behind(off int64) (int64, bool) {
	if r.at == nil || r.size < fileHeadBytes+indexHeadBytes+trailerBytes {
		return 0, false
	}
	var end [trailerBytes]byte
	if _, err := r.at.ReadAt(end[:], r.size-trailerBytes); err != nil {
		return 0, false
	}
	t, err := parseTrailer(end[:])
	room := uint64(r.size - trailerBytes - indexHeadBytes)
	if err != nil || t.count > room/indexEntryBytes || t.index != room-t.count*indexEntryBytes || t.index <= uint64(off) {
		return 0, false
	}
	entry := func(i int) uint64 {
		var b [8]byte
		if _, err := r.at.ReadAt(b[:], int64(t.index)+indexHeadBytes+int64(i)*indexEntryBytes); err != nil {
			return t.index
		}
		return binary.LittleEndian.Uint64(b[:])
	}
	i := sort.Search(int(t.count), func(i int) bool { return entry(i) > uint64(off) })
	if i == int(t.count) {
		return int64(t.index), true
	}
	next := entry(i)
	// The index may itself be damaged, or lie: it may only lead on.
	if next <= uint64(off) || next > t.index {
		return 0, false
	}
	return int64(next), true
}
