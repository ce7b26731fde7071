// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// A data frame may take writeGrace plus its size at slowestBytes per second to leave, so that a
// receiver that stops reading is noticed, and a slow network is not.
const (
	writeGrace   = 5 * time.Second
	slowestBytes = 4 << 20
)

// flight names a data frame that waits for its ack.
type flight struct {
	id      transferID
	attempt uint32
}

// answer is an ack.
type answer struct {
	status status
	reason string
}

// link is one data connection of a sender. Any goroutine may send; one goroutine reads acks, one keeps
// house: it writes small frames, so that no Send waits for them, and watches for signs of life.
type link struct {
	s          *sender
	address    string
	nc         net.Conn
	generation uint64        // of the receiver
	token      chan struct{} // full while someone writes to nc; waiters are served in order
	posted     chan struct{} // holds a value when the outbox has grown
	done       chan struct{} // closed when the link is broken

	mu      sync.Mutex // guards the fields below
	err     error      // why it broke; wraps ErrPeer
	waiting map[flight]chan answer
	outbox  []byte // whole small frames that wait for the token
	// asked is when the first frame after the last sign of life was written; zero when the receiver
	// owes nothing. Answers come in order, so any of them shows life. A cancel has none, but the next
	// ping does.
	asked time.Time
}

// newLink takes over nc after hello. Its two goroutines are started by dial.
func newLink(s *sender, address string, nc net.Conn, generation uint64) *link {
	return &link{
		s: s, address: address, nc: nc, generation: generation,
		token:   make(chan struct{}, 1),
		posted:  make(chan struct{}, 1),
		done:    make(chan struct{}),
		waiting: make(map[flight]chan answer),
	}
}

// send writes one object and waits for its ack.
func (l *link) send(ctx context.Context, f flight, obj []byte) (reason string, err error) {
	ack, err := l.expect(f)
	if err != nil {
		return "", err
	}
	defer l.forget(f)
	if err := l.writeData(ctx, f, obj); err != nil {
		return "", err
	}
	select {
	case a := <-ack:
		return a.result()
	case <-l.done:
	case <-ctx.Done():
		l.post(l.cancelFrame(f))
		return "", fmt.Errorf("waiting for the ack: %w", context.Cause(ctx))
	}
	// read may have handed an ack over just before the link broke; select would pick at random.
	select {
	case a := <-ack:
		return a.result()
	default:
		return "", l.cause()
	}
}

// result returns what Send reports for a: the name for metrics and the classed error.
func (a answer) result() (string, error) {
	class := a.status.class()
	if class == nil {
		return "", nil
	}
	return a.status.String(), fmt.Errorf("%w: receiver says %s: %s", class, a.status, a.reason)
}

// expect registers f, so that its ack finds its way.
func (l *link) expect(f flight) (<-chan answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	if l.waiting[f] != nil {
		return nil, fmt.Errorf("%w: it is being sent already", ErrGone)
	}
	ack := make(chan answer, 1)
	l.waiting[f] = ack
	return ack, nil
}

// forget makes an ack that still comes a late one, which is counted and dropped, so that it can never
// be taken for that of another Send.
func (l *link) forget(f flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, f)
}

// writeData writes header and object in one call, after those who came first.
func (l *link) writeData(ctx context.Context, f flight, obj []byte) error {
	select {
	case l.token <- struct{}{}:
	case <-l.done:
		return l.cause()
	case <-ctx.Done():
		l.post(l.cancelFrame(f))
		return fmt.Errorf("waiting for the connection: %w", context.Cause(ctx))
	}
	defer l.release()
	if ctx.Err() != nil { // select picks at random when both are ready
		l.post(l.cancelFrame(f))
		return fmt.Errorf("waiting for the connection: %w", context.Cause(ctx))
	}
	h := header{Type: frameData, Transfer: f.id, Attempt: f.attempt, Generation: l.generation, Length: uint64(len(obj))}
	return l.write(ctx, net.Buffers{h.append(nil), obj})
}

// write needs the token. A frame that is cut short leaves the stream out of step, so whatever ends the
// write early, ctx included, breaks the link.
func (l *link) write(ctx context.Context, bufs net.Buffers) error {
	size := 0
	for _, b := range bufs {
		size += len(b)
	}
	limit := writeGrace + time.Duration(size)*time.Second/slowestBytes
	if err := l.nc.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return l.fail(err)
	}
	// A blocked write ends only by its deadline, so that is what ctx moves.
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = l.nc.SetWriteDeadline(time.Unix(1, 0)) // fails only on a closed connection
	})
	n, err := bufs.WriteTo(l.nc)
	if !stop() {
		<-interrupted // or the next writer would find its deadline in the past
	}
	if err != nil && ctx.Err() != nil {
		_ = l.fail(fmt.Errorf("closed after a send was cancelled with %d of %d bytes written", n, size))
		return fmt.Errorf("after %d of %d bytes: %w", n, size, context.Cause(ctx))
	}
	if err != nil {
		return l.fail(fmt.Errorf("after %d of %d bytes: %w", n, size, err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked.IsZero() {
		l.asked = time.Now()
	}
	return nil
}

// release lets the next writer go.
func (l *link) release() { <-l.token }

func (l *link) cancelFrame(f flight) header {
	return header{Type: frameCancel, Transfer: f.id, Attempt: f.attempt, Generation: l.generation}
}

// read takes frames from the receiver until the link breaks.
func (l *link) read() {
	in := bufio.NewReader(l.nc)
	for {
		h, err := readHeader(in)
		var text []byte
		if err == nil {
			text, err = readText(in, h)
		}
		if err == nil && h.Type != frameAck && h.Type != framePong {
			err = fmt.Errorf("%w: unexpected type %d", errMalformed, h.Type)
		}
		if err != nil {
			_ = l.fail(err)
			return
		}
		l.alive()
		if h.Type == frameAck {
			l.acked(flight{h.Transfer, h.Attempt}, answer{h.Status, string(text)})
		}
	}
}

// acked wakes the Send that waits for a. Nobody does after a cancel.
func (l *link) acked(f flight, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ack, ok := l.waiting[f]
	if !ok {
		l.s.m.dropped.WithLabelValues(sideSender, "late ack").Inc()
		return
	}
	delete(l.waiting, f) // a second ack is late
	ack <- a             // never blocks: room for one, and only one comes
}

// fail breaks the link, once, and returns why it is broken.
func (l *link) fail(cause error) error {
	l.s.drop(l) // first, so that whoever learns of the failure and sends again gets another link
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	l.err = fmt.Errorf("%w: %w", ErrPeer, cause)
	n := len(l.waiting)
	l.mu.Unlock()
	close(l.done)
	l.nc.Close()
	if !errors.Is(cause, ErrClosed) {
		l.s.log.Info("data connection broke", "address", l.address, "err", cause, "sends_failed", n)
	}
	return l.cause()
}

// cause returns why the link is broken.
func (l *link) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
