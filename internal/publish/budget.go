// SPDX-License-Identifier: Apache-2.0

package publish

import "afterimage/internal/arena"

// granule is what memory is handed out in: a Buf of 40 bytes keeps 64 from others.
const granule = 64

// budget bounds the memory that publications hold. A Buf that several of them share counts once, until
// the last of them has ended. The caller holds the lock.
type budget struct {
	max     int64
	bytes   int64
	charges map[*arena.Buf]*charge
}

type charge struct {
	bytes        int64
	publications int
}

// charge makes room for one publication of buf, or reports that there is none.
func (b *budget) charge(buf *arena.Buf) bool {
	if c, ok := b.charges[buf]; ok {
		c.publications++
		return true
	}
	n := (int64(buf.Len()) + granule - 1) / granule * granule
	if b.bytes+n > b.max {
		return false
	}
	b.charges[buf] = &charge{bytes: n, publications: 1}
	b.bytes += n
	return true
}

// giveBack ends one publication of buf. It is called before the publication's reference is released, so
// that the Buf is still the one that was charged.
func (b *budget) giveBack(buf *arena.Buf) {
	c := b.charges[buf]
	if c.publications--; c.publications == 0 {
		delete(b.charges, buf)
		b.bytes -= c.bytes
	}
}
