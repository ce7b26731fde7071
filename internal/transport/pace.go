// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"io"
	"net"
	"time"
)

// errLetGo: the room was given up while its memory was being filled.
var errLetGo = errors.New("transfer is no longer wanted")

// errSlow: a writer is not silent, and will not be through in any useful time either.
var errSlow = errors.New("writer is too slow")

// progressBytes of a frame, or what it has less, must come within WriterTimeout: 512 KiB/s by default. A
// writer that sends a byte now and then would keep memory and connection as long as it likes.
const progressBytes = 1 << 20

// pace reads from a peer that must make progress: each Read that returns bytes buys it another
// WriterTimeout, and within a frame only if it is not slow.
type pace struct {
	s *session
	// A silence of three quarters of the timeout may already be too long, since deadlines are moved only
	// four times per timeout. Moving one costs about as much as a small read.
	moved time.Time
	// modest reads no further than the head of a frame.
	modest bool
	// Within a frame: when the bytes of the current progressBytes began, and how many have come.
	since time.Time
	came  int
}

// begin is called before the first byte of a body.
func (p *pace) begin() { p.since, p.came = time.Now(), 0 }

// end is called when a head, or a body, is there.
func (p *pace) end() { p.since = time.Time{} }

// Read implements io.Reader, for the buffer.
func (p *pace) Read(b []byte) (int, error) {
	if p.modest {
		b = b[:min(len(b), headerBytes)]
	}
	if p.since.IsZero() && p.s.in.Buffered() > 0 { // a part of a head
		p.begin()
	}
	return p.read(b)
}

func (p *pace) read(b []byte) (int, error) {
	timeout := p.s.r.cfg.WriterTimeout
	if now := time.Now(); now.Sub(p.moved) >= timeout/4 {
		if !p.since.IsZero() && now.Sub(p.since) >= timeout {
			return 0, errSlow
		}
		if err := p.s.extend(now.Add(timeout)); err != nil {
			return 0, err
		}
		p.moved = now
	}
	var from io.Reader = p.s.nc
	if p.s.quick != nil && len(b) <= inBytes { // the buffer asks for that much, and gets mostly one frame
		from = p.s.quick
	}
	n, err := from.Read(b)
	p.s.r.n.wire.Add(float64(n))
	if p.came += n; p.came >= progressBytes && !p.since.IsZero() {
		p.since, p.came = time.Now(), p.came%progressBytes
	}
	return n, err
}

// extend moves the read deadline, unless whoever interrupted the session wants that to stand.
func (s *session) extend(by time.Time) error {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	switch {
	case s.stopped:
		return net.ErrClosed
	case s.filling != nil && s.filling.state != roomWriting:
		return errLetGo
	}
	return s.nc.SetReadDeadline(by)
}
