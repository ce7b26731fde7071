// SPDX-License-Identifier: Apache-2.0

package transport

// flight names a transfer on a connection.
type flight struct {
	id      transferID
	attempt uint32
}

func (h header) flight() flight { return flight{h.Transfer, h.Attempt} }

// answer is what a receiver says of a transfer, or why it never will.
type answer struct {
	status status
	reason string
	err    error // wraps ErrPeer; then the rest is not set
}

// call is somebody who waits for answers about a flight.
type call struct {
	answer chan answer
	large  bool // what is sent takes longer than to change goroutines
}

// begin registers f, an object of n bytes, so that answers find their way.
func (l *link) begin(f flight, n int) (*call, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	var c *call
	if n := len(l.spare); n > 0 {
		c, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		c = &call{answer: make(chan answer, 2)} // a grant and a complete
	}
	c.large = n > inBytes
	l.calls[f] = c
	return c, nil
}

// end makes an answer that still comes a late one, which is counted and dropped, so that it can never
// be taken for that of another Send.
func (l *link) end(f flight, c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[f] == c {
		delete(l.calls, f)
	}
}

// maxSpare calls are kept for later Sends.
const maxSpare = 64

// retire does end, for a caller that is through with c.
func (l *link) retire(f flight, c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[f] == c {
		delete(l.calls, f)
	}
	for len(c.answer) > 0 { // nobody else takes any, and none comes any more
		<-c.answer
	}
	if len(l.spare) < maxSpare {
		l.spare = append(l.spare, c)
	}
}

// answeredLocked wakes whoever waits for a. Nobody does after a cancel, and for a reservation.
func (l *link) answeredLocked(f flight, a answer) {
	c := l.calls[f]
	if c == nil {
		l.s.m.dropped.WithLabelValues(sideSender, "late answer").Inc()
		return
	}
	l.yields = c.large
	select {
	case c.answer <- a:
	default: // more answers than questions
		l.s.m.dropped.WithLabelValues(sideSender, "late answer").Inc()
	}
}

// cancelledLocked takes note that the receiver no longer wants an object.
func (l *link) cancelledLocked(f flight, why string) {
	l.unqueueLocked(f)
	if c := l.calls[f]; c != nil {
		select {
		case c.answer <- answer{status: statusCancelled, reason: why}:
		default:
		}
	}
}
