// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"afterimage/internal/arena"
	"afterimage/internal/fdpass"
)

// makeLink makes the borrower of a client that asked for a link, and answers hello. When the Store's
// memory cannot be shown, the answer lacks flagLink and the connection is a lane like any other.
func (s *session) makeLink(h head, a ask) error {
	files, err := s.srv.show()
	if err != nil {
		s.src.take(0)
		return s.greet(h, greeting{}, nil)
	}
	defer fdpass.CloseAll(files)
	g := greeting{flags: flagLink, memory: s.srv.cfg.Arena.Stats().Capacity, place: noPlace,
		sketch: s.srv.shelf.sketch.mem.Stats().Capacity, index: s.srv.shelf.index.mem.Stats().Capacity}
	memory, table := s.clientMemory(a)
	if memory != nil {
		g.flags |= flagMemory
	}
	s.borrower = s.srv.lendTo(memory)
	if g.link = s.borrower.id; table.buf != nil {
		if s.srv.shelf.openAccount(s.borrower, table) {
			g.place = uint64(s.borrower.account.place)
		} else {
			table.buf.Release()
		}
	}
	return s.greet(h, g, files)
}

// clientMemory maps the arena and the table that a client showed, as far as it did.
func (s *session) clientMemory(a ask) (memory *arena.Mapping, table words[uint64]) {
	sizes := make([]uint64, 0, 2)
	for _, n := range []uint64{a.memory, a.table} {
		if n > 0 {
			sizes = append(sizes, n)
		}
	}
	files := s.src.take(len(sizes))
	defer fdpass.CloseAll(files)
	var err error
	if files == nil && len(sizes) > 0 {
		err = fmt.Errorf("no descriptors for %d ranges of memory", len(sizes))
	}
	for i, f := range files {
		m, e := arena.MapShared(f, int64(sizes[i]))
		switch {
		case e != nil:
			err = errors.Join(err, e)
		case i == 0 && a.memory > 0:
			memory = m
		default:
			table, e = openTable(m)
			err = errors.Join(err, e, m.Close()) // stays mapped while it is in use
		}
	}
	if err != nil {
		s.srv.cfg.Logger.Warn("store: a client will ask for what it could see, or have it streamed", "process", a.pid, "error", err)
	}
	return memory, table
}

// show returns descriptors of the Store's memory, sketch and index.
func (s *Server) show() ([]*os.File, error) {
	var files []*os.File
	for _, a := range []*arena.Arena{s.cfg.Arena, s.shelf.sketch.mem, s.shelf.index.mem} {
		f, err := a.Share()
		if err != nil {
			fdpass.CloseAll(files)
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// lendTo registers a borrower under a number that others cannot guess.
func (s *Server) lendTo(m *arena.Mapping) *borrower {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		id := rand.Uint64()
		if _, taken := s.borrowers[id]; id != 0 && !taken {
			s.borrowers[id] = newBorrower(id, m)
			return s.borrowers[id]
		}
	}
}

func (s *Server) borrowerOf(id uint64) *borrower {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.borrowers[id]
}
