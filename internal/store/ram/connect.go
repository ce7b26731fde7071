// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"cmp"
	"context"
	"net"
	"os"

	"afterimage/internal/arena"
	"afterimage/internal/fdpass"
	"afterimage/internal/quick"
)

// connected returns the link to join with nc, making one if need be; nil where objects are streamed.
func (c *Client) connected(ctx context.Context, nc net.Conn) (*link, error) {
	if _, ok := nc.(*net.UnixConn); !ok || c.cfg.Stream || c.cfg.Arena == nil {
		return nil, nil
	}
	select {
	case c.linking <- struct{}{}:
		defer func() { <-c.linking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l := c.link.Load(); l != nil {
		return l, nil
	}
	if e := c.linkless.Load(); e != 0 && e == c.epoch.Load() {
		return nil, nil
	}
	memory, err := c.cfg.Arena.Share()
	if err != nil {
		return nil, nil // Go memory, in a race build
	}
	defer memory.Close()
	own, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { own.Close() })
	l, err := c.makeLink(own, memory)
	if l == nil {
		own.Close()
	}
	if !stop() && l != nil {
		c.lose(l)
		return nil, ctx.Err()
	}
	return l, err
}

// makeLink exchanges memory with the Store. It returns nil when the Store lends nothing.
func (c *Client) makeLink(nc net.Conn, memory *os.File) (made *link, err error) {
	cn := newConn(c, nc, quick.Poll{})
	defer cn.limit.end()
	a := ask{pid: uint32(os.Getpid()), flags: flagLink, memory: uint64(c.cfg.Arena.Stats().Capacity)}
	p, table := newPins()
	defer func() {
		if made == nil {
			p.close()
		}
	}()
	files := []*os.File{memory}
	if p != nil {
		defer table.Close()
		files, a.table = append(files, table), tableBytes
	}
	g, err := cn.hello(a, files)
	if err = cmp.Or(err, cn.limit.met()); err != nil {
		fdpass.CloseAll(cn.src.take(0))
		return nil, err
	}
	c.noteEpoch(g)
	files = cn.src.take(3)
	defer fdpass.CloseAll(files)
	l := c.openLink(cn, g, files, p)
	if l == nil {
		c.linkless.Store(g.epoch)
		return nil, nil
	}
	c.link.Store(l)
	c.shown.Add(1)
	go l.read()
	go l.write()
	return l, nil
}

// openLink makes a link of what a Store showed; nil when that was not enough.
func (c *Client) openLink(cn *conn, g greeting, files []*os.File, p *pins) *link {
	if g.flags&flagLink == 0 || files == nil {
		return nil
	}
	memory, err := arena.MapShared(files[0], g.memory)
	if err != nil {
		return nil // no address space, most likely: streaming goes on
	}
	return &link{c: c, nc: cn.nc, in: cn.in, id: g.link, memory: memory, shown: g.flags&flagMemory != 0,
		alive: newProbe(cn.nc), wake: make(chan struct{}, 1), gone: make(chan struct{}), loans: make(map[uint64]*arena.Buf),
		sketch: mapSketch(files[1], g.sketch), pins: p.with(mapIndex(files[2], g.index), g.place)}
}

// mapSketch returns nil for a sketch that cannot be used: every key is asked for then.
func mapSketch(f *os.File, n int64) *sketch {
	m, err := arena.MapShared(f, n)
	if err != nil {
		return nil
	}
	defer m.Close() // stays mapped while the sketch holds its Buf
	s, err := openSketch(m)
	if err != nil {
		return nil
	}
	return s
}

// mapIndex returns nil for an index that cannot be used: every object is asked for then.
func mapIndex(f *os.File, n int64) *index {
	m, err := arena.MapShared(f, n)
	if err != nil {
		return nil
	}
	defer m.Close() // stays mapped while the index holds its Buf
	x, err := openIndex(m)
	if err != nil {
		return nil
	}
	return x
}

// lose ends the use of a link for new calls. Its loans stay.
func (c *Client) lose(l *link) {
	if c.link.CompareAndSwap(l, nil) {
		l.leave()
	}
}
