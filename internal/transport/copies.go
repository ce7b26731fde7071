// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"sync"

	"afterimage/internal/arena"
)

// copies are objects that lie elsewhere than in the sender's arena, copied into it, so that receivers of this host, who
// have mapped that, can borrow them. An object on loan from a Store cannot be lent on: the Store takes its memory back
// when this process dies, whoever else reads it. One copy here is still less than two through the kernel, needs no
// memory of the receiver's, and serves all receivers to whom the object is being sent at the same time.
type copies struct {
	mu    sync.Mutex // guards the fields below, and users
	byBuf map[*arena.Buf]*duplicate
}

// duplicate is one of them. It lives as long as a Send uses it, and as it is on loan.
type duplicate struct {
	once  sync.Once  // makes buf
	buf   *arena.Buf // nil where there was no room
	users int
}

// take returns the copy of buf in own, and makes it if nobody has. It is the caller's until drop.
func (c *copies) take(own *arena.Arena, buf *arena.Buf) *duplicate {
	c.mu.Lock()
	d := c.byBuf[buf]
	if d == nil {
		d = new(duplicate)
		c.byBuf[buf] = d
	}
	d.users++
	c.mu.Unlock()
	d.once.Do(func() {
		if room, err := own.Reserve(buf.Len()); err == nil {
			arena.Copy(room.Bytes(), buf.Bytes())
			room.Commit()
			d.buf = room
		}
	})
	return d
}

// drop takes note that a caller of take is done with the copy of buf.
func (c *copies) drop(buf *arena.Buf, d *duplicate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.users--; d.users > 0 {
		return
	}
	delete(c.byBuf, buf)
	if d.buf != nil {
		d.buf.Release()
	}
}
