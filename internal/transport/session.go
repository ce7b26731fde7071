// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"
)

// session is one data connection of a receiver. Its goroutine alone reads and writes, one frame after
// the other, so answers need no lock and stay in order.
type session struct {
	r   *receiver
	nc  net.Conn
	log *slog.Logger
}

// run serves the connection until it breaks or makes no sense.
func (s *session) run() {
	if err := s.greet(); err != nil {
		s.ended(err)
		return
	}
	conns := s.r.m.conns.WithLabelValues(sideReceiver)
	conns.Inc()
	defer conns.Dec()
	for {
		if err := s.frame(); err != nil {
			s.ended(err)
			return
		}
	}
}

// ended logs and counts why a connection closes. An ordinary end is silent.
func (s *session) ended(err error) {
	switch {
	case s.r.ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed):
	case errors.Is(err, errMalformed):
		s.drop("malformed")
		s.log.Warn("data connection closed", "err", err)
	case errors.Is(err, ErrRefused):
		s.drop("hello")
		s.log.Warn("data connection refused", "err", err)
	default:
		s.log.Info("data connection ended", "err", err)
	}
}

// drop counts a frame, or the bytes of a connection that make none, as thrown away.
func (s *session) drop(reason string) { s.r.m.dropped.WithLabelValues(sideReceiver, reason).Inc() }

// greet exchanges hellos. A peer that does not fit gets both values as the reason.
func (s *session) greet() error {
	if err := s.nc.SetReadDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	// Engine and width are compared here, once per connection, and not per transfer: nothing that does
	// not fit gets as far as naming one.
	h, err := readHeader(s.nc)
	var foreign versionError
	if errors.As(err, &foreign) {
		return s.refuse(err)
	}
	if err != nil {
		return err
	}
	if h.Type != frameHello {
		return fmt.Errorf("%w: type %d before hello", errMalformed, h.Type)
	}
	text, err := readText(s.nc, h)
	if err != nil {
		return err
	}
	peer, err := parseHello(text)
	if err != nil {
		return err
	}
	if err := s.r.me.fits(peer); err != nil {
		return s.refuse(err)
	}
	return s.reply(header{Type: frameHello}, string(s.r.me.encode()))
}

// refuse answers a hello that does not fit. The reason is worded for the peer, to whom "peer" is this
// process; the prefix says who is speaking.
func (s *session) refuse(why error) error {
	if err := s.reply(header{Type: frameHello, Status: statusRefused}, "receiver: "+why.Error()); err != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrRefused, why)
}

// frame reads one frame and answers it. An error closes the connection.
func (s *session) frame() error {
	if err := s.nc.SetReadDeadline(time.Now().Add(s.r.cfg.IdleTimeout)); err != nil {
		return err
	}
	h, err := readHeader(s.nc)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no frame for %v", s.r.cfg.IdleTimeout)
	case err != nil:
		return err
	case h.Type == frameData:
		return s.data(h)
	case h.Length != 0:
		return fmt.Errorf("%w: body of %d bytes in a frame of type %d", errMalformed, h.Length, h.Type)
	case h.Type == framePing:
		return s.reply(header{Type: framePong}, "")
	case h.Type == frameCancel:
		s.r.abandon(s, h)
		return nil
	}
	return fmt.Errorf("%w: unexpected type %d", errMalformed, h.Type)
}

// reply writes one small frame. A peer that does not read for WriterTimeout loses its connection.
func (s *session) reply(h header, text string) error {
	h.Generation = s.r.generation
	if err := s.nc.SetWriteDeadline(time.Now().Add(s.r.cfg.WriterTimeout)); err != nil {
		return err
	}
	_, err := s.nc.Write(appendText(nil, h, []byte(text)))
	return err
}

// ack answers the data frame h.
func (s *session) ack(h header, st status, reason string) error {
	return s.reply(header{Type: frameAck, Status: st, Transfer: h.Transfer, Attempt: h.Attempt}, reason)
}

// interrupt makes a Read that is under way return at once with os.ErrDeadlineExceeded.
func (s *session) interrupt() {
	_ = s.nc.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed connection, whose Read returns too
}
