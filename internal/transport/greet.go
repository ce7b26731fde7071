// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/fdpass"
)

// greet exchanges hellos. A peer that does not fit gets both values as the reason.
func (s *session) greet() error {
	if err := s.extend(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	if s.near != nil {
		if err := sameUser(s.near, s.r.user); err != nil {
			return err
		}
	}
	if secure, ok := s.nc.(*tls.Conn); ok {
		if err := handshake(secure); err != nil {
			return err
		}
	}
	// Read without the buffer, so that no byte behind the hello is taken.
	src := &fdpass.Source{Conn: s.nc}
	defer src.Take(-1) // closes what came unasked
	peer, err := readHello(src)
	var foreign versionError
	if errors.As(err, &foreign) {
		return s.refuse(err)
	}
	if err != nil {
		return err
	}
	// What fits is compared here, once per connection, and not per transfer: nothing that does not gets
	// as far as naming one.
	if err := s.r.me.fits(peer); err != nil {
		return s.refuse(err)
	}
	s.log = s.log.With("version", peer.Version)
	me := s.r.me
	me.Borrows = s.mapMemory(peer, src)
	s.answers.add(header{Type: frameHello, Generation: s.r.generation}, me.encode())
	return nil
}

// readHello reads the hello of a sender.
func readHello(src io.Reader) (hello, error) {
	h, err := readHeader(src)
	if err != nil {
		return hello{}, err
	}
	if h.Type != frameHello {
		return hello{}, fmt.Errorf("%w: type %d before hello", errMalformed, h.Type)
	}
	text, err := readText(src, h)
	if err != nil {
		return hello{}, err
	}
	return parseHello(text)
}

// handshake ends in ErrRefused for a peer that does not fit. One that does not speak TLS is told so in
// its own tongue.
func handshake(nc *tls.Conn) error {
	err := nc.Handshake()
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) && plain.Conn != nil {
		const why = "receiver: this process takes TLS only, the peer came without"
		_, _ = plain.Conn.Write(appendText(nil, header{Type: frameHello, Status: statusRefused}, why))
		return fmt.Errorf("%w: %s", ErrRefused, why)
	}
	return fitsTLS(err)
}

// mapMemory maps the arena of a sender that shows it. Without, it copies: callers need not know.
func (s *session) mapMemory(peer hello, src *fdpass.Source) bool {
	if peer.Memory == 0 || s.near == nil {
		return false
	}
	if !s.r.me.near(peer.place) {
		s.log.Warn("memory of a sender is not mapped: it runs elsewhere", "here", s.r.me.place, "there", peer.place)
		return false
	}
	files := src.Take(1)
	if files == nil {
		s.log.Warn("memory of a sender is not mapped: no descriptor came", "bytes", peer.Memory)
		return false
	}
	defer files[0].Close()
	m, err := arena.MapShared(files[0], peer.Memory)
	if err != nil {
		s.log.Warn("memory of a sender is not mapped", "err", err)
		return false
	}
	s.memory = m
	return true
}

// refuse answers a hello that does not fit. The reason is worded for the peer, to whom "peer" is this
// process; the prefix says who is speaking.
func (s *session) refuse(why error) error {
	s.answers.add(header{Type: frameHello, Status: statusRefused, Generation: s.r.generation}, "receiver: "+why.Error())
	return fmt.Errorf("%w: %w", ErrRefused, why)
}

// hail exchanges hellos over nc, from the sender's side, and returns the receiver's. memory is what a
// receiver on this host may map; nil for none.
func (s *sender) hail(nc net.Conn, memory *arena.Arena) (their hello, generation uint64, err error) {
	if err := nc.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return hello{}, 0, err
	}
	if err := s.sayHello(nc, memory); err != nil {
		return hello{}, 0, fmt.Errorf("hello: %w", err)
	}
	h, err := readHeader(nc)
	var foreign versionError
	if errors.As(err, &foreign) {
		return hello{}, 0, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err != nil {
		return hello{}, 0, fmt.Errorf("hello: %w", err)
	}
	if h.Type != frameHello {
		return hello{}, 0, fmt.Errorf("hello: %w: answered by type %d", errMalformed, h.Type)
	}
	text, err := readText(nc, h)
	if err != nil {
		return hello{}, 0, fmt.Errorf("hello: %w", err)
	}
	// The receiver's reason names both values; where it saw no difference, this side may.
	if h.Status != statusComplete {
		return hello{}, 0, fmt.Errorf("%w: %s", ErrRefused, text)
	}
	if their, err = parseHello(text); err != nil {
		return hello{}, 0, err
	}
	if err := s.me.fits(their); err != nil {
		return hello{}, 0, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	// From here on reads wait as long as they like: keepHouse watches the silence.
	return their, h.Generation, nc.SetDeadline(time.Time{})
}

// sayHello sends the sender's hello, with the descriptor of memory unless that cannot be shown.
func (s *sender) sayHello(nc io.Writer, memory *arena.Arena) error {
	me := s.me
	u, near := nc.(*net.UnixConn)
	if memory == nil || !near {
		_, err := nc.Write(appendText(nil, header{Type: frameHello}, me.encode()))
		return err
	}
	file, err := memory.Share()
	if err != nil { // a race build: objects are copied
		_, err := u.Write(appendText(nil, header{Type: frameHello}, me.encode()))
		return err
	}
	defer file.Close()
	me.Memory = memory.Stats().Capacity
	return fdpass.Write(u, appendText(nil, header{Type: frameHello}, me.encode()), file)
}
