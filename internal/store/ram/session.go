// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"

	"afterimage/internal/fdpass"
	"afterimage/internal/quick"
)

// session serves one connection: one request at a time, in order. Everything it holds of the shelf
// is given back before run returns.
type session struct {
	srv   *Server
	nc    net.Conn
	limit *limit
	alive *probe
	src   *source
	r     *bufio.Reader
	in    frames
	out   []byte // the reply in work

	borrower *borrower // of a link
	track    *track    // of a lane that joined a link
	wishes   []wish    // of the GET in work
	offers   []offer   // its answers
	returned []uint64  // the loans in work
	listing  *listing  // nil between lists
}

func newSession(srv *Server, nc net.Conn) *session {
	tune(nc)
	s := &session{srv: srv, nc: nc, limit: srv.watch.add(nc), alive: newProbe(nc), src: &source{nc: nc, quick: quick.New(nc, quick.Poll{})}}
	s.r = bufio.NewReaderSize(s.src, readAhead)
	s.in.r = s.r
	return s
}

// run serves until the client goes away or breaks the format.
func (s *session) run() {
	defer s.limit.end()
	err := s.hello()
	fdpass.CloseAll(s.src.files) // what came without being asked for
	if s.track != nil {
		defer s.srv.shelf.leave(s.track)
	}
	if s.borrower != nil {
		s.runLink()
		return
	}
	for err == nil { // no limit between requests: an idle client costs nothing, and a dead one closes the socket
		var h head
		var body []byte
		if h, body, err = s.in.next(); err == nil {
			err = s.serve(h, body)
		}
		s.refuse(h, err)
	}
}

// refuse tells a client that broke the format why it is cut off.
func (s *session) refuse(h head, err error) {
	if errors.Is(err, errProtocol) {
		s.srv.malformed.Add(1)
		s.srv.cfg.Logger.Warn("store: connection closed", "error", err)
		s.text(h, statusMalformed, err)
	}
}

// hello is the first exchange. It has a deadline, so that a silent stranger does not hold a place.
func (s *session) hello() error {
	s.limit.within(s.srv.cfg.IOTimeout)
	h, body, err := s.in.next()
	err = cmp.Or(err, s.limit.met())
	if err == nil && h.op != opHello {
		err = fmt.Errorf("%w: op %d before hello", errProtocol, h.op)
	}
	var a ask
	if err == nil {
		a, err = parseAsk(body)
	}
	if err != nil {
		s.refuse(h, err)
		return err
	}
	if a.flags&flagLink != 0 {
		return s.makeLink(h, a)
	}
	s.src.take(0)
	var g greeting
	if b := s.srv.borrowerOf(a.link); b != nil {
		if s.track = s.srv.shelf.join(b, a.lane); s.track != nil {
			g.flags = flagLink
		}
	}
	return s.greet(h, g, nil)
}

// greet answers hello.
func (s *session) greet(h head, g greeting, files []*os.File) error {
	g.epoch, g.maxObject = s.srv.epoch, s.srv.cfg.MaxObjectBytes
	b := head{op: opHello, request: h.request, body: helloBytes}.append(s.out[:0])
	s.limit.within(s.srv.cfg.IOTimeout)
	return cmp.Or(fdpass.Write(s.nc, g.append(b), files...), s.limit.met())
}

// serve answers one request. Each handler writes its own reply.
func (s *session) serve(h head, body []byte) error {
	switch h.op {
	case opExists:
		return s.exists(h, body)
	case opGet:
		return s.get(h, body)
	case opRemove:
		return s.remove(h, body)
	case opLend:
		return s.lend(h, body)
	case opReserve:
		return s.put(h, body)
	case opReturn:
		return s.takeBack(h, body)
	case opTake:
		return s.take(h, body)
	case opList:
		return s.list(h, body)
	case opTotals:
		return s.totals(h)
	case opSubscribe:
		return s.subscribe(h)
	}
	return fmt.Errorf("%w: op %d", errProtocol, h.op)
}

// text answers with a refusal that says why.
func (s *session) text(h head, st status, why error) error {
	t := why.Error()
	t = t[:min(len(t), maxTextBytes)]
	h = head{op: h.op, status: st, request: h.request, body: len(t)}
	return s.write(append(h.append(s.out[:0]), t...))
}

// write sends a reply and keeps its memory for the next one. A client that does not take it in time
// loses the connection: it must not hold memory of the Store for ever.
func (s *session) write(b []byte) error {
	if s.out = b[:0]; cap(b) > keepBytes {
		s.out = nil
	}
	s.limit.within(s.srv.cfg.IOTimeout)
	return cmp.Or(tell(s.nc, s.src.quick, b), s.limit.met())
}
