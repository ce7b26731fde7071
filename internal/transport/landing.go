// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"afterimage/internal/embedding"
)

// data takes the body of one data frame: into the granted range, or nowhere.
func (s *session) data(h header) error {
	if h.Length > uint64(s.r.cfg.MaxFrameBytes) {
		return fmt.Errorf("%w: data of %d bytes, at most %d", errMalformed, h.Length, s.r.cfg.MaxFrameBytes)
	}
	t, st, reason := s.r.admit(s, h)
	if t != nil {
		return s.land(t, h)
	}
	s.drop(dropReason(st))
	if err := s.drain(int64(h.Length)); err != nil {
		return err
	}
	return s.ack(h, st, reason)
}

// dropReason names a dropped frame in metrics: data of a complete transfer is confirmed, but dropped.
func dropReason(st status) string {
	if st == statusComplete {
		return "duplicate"
	}
	return st.String()
}

// admit decides about a data frame. With a ticket, s owns the ticket's memory until it calls landed
// or spilled; without, the status and its reason are the answer once the body is drained.
func (r *receiver) admit(s *session, h header) (*ticket, status, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.Generation != r.generation {
		return nil, statusGeneration, fmt.Sprintf("generation is %d, frame has %d", r.generation, h.Generation)
	}
	t, ok := r.live[h.Transfer]
	if !ok { // a tombstone tells late from never
		if past, ok := r.past.states[h.Transfer]; ok {
			return nil, lateStatus(past), "transfer is " + past.String()
		}
		return nil, statusUnknown, "transfer is not known"
	}
	if h.Attempt != t.attempt {
		return nil, statusAttempt, fmt.Sprintf("attempt is %d, frame has %d", t.attempt, h.Attempt)
	}
	if t.state == granted && h.Length != uint64(t.want.Bytes) {
		err := fmt.Errorf("granted %d bytes, frame has %d", t.want.Bytes, h.Length)
		r.stepLocked(t, evFail, statusSize.String(), err)
		return nil, statusSize, err.Error()
	}
	if late := t.state; r.stepLocked(t, evData, "", nil) != fill {
		return nil, lateStatus(late), "transfer is " + late.String()
	}
	t.writer = s
	return t, 0, ""
}

// land reads the object into the ticket's memory, checks it and answers.
func (s *session) land(t *ticket, h header) error {
	in := &steadyReader{nc: s.nc, timeout: s.r.cfg.WriterTimeout, set: func(by time.Time) error {
		return s.r.extend(t, by)
	}}
	n, err := io.ReadFull(in, t.buf.Bytes())
	if err != nil {
		return s.spill(t, h, n, err)
	}
	// Without the lock: checking sums 64 MiB in milliseconds. A cancel meanwhile shows in landed.
	meta, err := s.r.open(t.want, t.buf.Bytes())
	st, reason := s.r.landed(t, meta, err)
	if st == statusCancelled || st == statusExpired {
		s.drop(st.String())
	}
	return s.ack(h, st, reason)
}

// errLetGo: the ticket was cancelled or expired while its memory was being filled.
var errLetGo = errors.New("transfer is no longer wanted")

// extend moves the read deadline of a writer, unless the ticket wants its memory back: then the
// deadline that interrupt set must stand.
func (r *receiver) extend(t *ticket, by time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.state != writing {
		return errLetGo
	}
	return t.writer.nc.SetReadDeadline(by)
}

// landed ends the writer's hold on the memory with the verdict on the object.
func (r *receiver) landed(t *ticket, meta embedding.Meta, verdict error) (status, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if verdict != nil {
		st := statusOf(verdict)
		r.stepLocked(t, evFail, st.String(), verdict)
		return st, verdict.Error()
	}
	t.meta = meta
	if r.stepLocked(t, evComplete, "", nil) != commit {
		return lateStatus(t.state), "transfer is " + t.state.String()
	}
	r.m.bytes.WithLabelValues(sideReceiver).Add(float64(t.want.Bytes))
	return statusComplete, ""
}

// spill ends the writer's hold on memory that holds only n bytes of its object. If it was the ticket
// that let go, the rest of the body is drained and the connection lives; if the writer stalled or
// died, the error closes it.
func (s *session) spill(t *ticket, h header, n int, err error) error {
	timeout := errors.Is(err, os.ErrDeadlineExceeded)
	reason, cause := "disconnect", fmt.Errorf("writer %s left after %d of %d bytes: %w", s.nc.RemoteAddr(), n, h.Length, err)
	if timeout {
		reason, cause = "stall", fmt.Errorf("writer %s stalled for %v after %d of %d bytes",
			s.nc.RemoteAddr(), s.r.cfg.WriterTimeout, n, h.Length)
	}
	s.r.mu.Lock()
	s.r.stepLocked(t, evFail, reason, cause)
	end := t.state
	s.r.mu.Unlock()
	if end == failed || !timeout && !errors.Is(err, errLetGo) {
		return cause
	}
	s.drop(lateStatus(end).String())
	if err := s.drain(int64(h.Length) - int64(n)); err != nil {
		return err
	}
	return s.ack(h, lateStatus(end), "transfer is "+end.String())
}

// drain reads and forgets n bytes, so that the next frame is found.
func (s *session) drain(n int64) error {
	in := &steadyReader{nc: s.nc, timeout: s.r.cfg.WriterTimeout, set: s.nc.SetReadDeadline}
	_, err := io.CopyN(io.Discard, in, n)
	return err
}

// abandon takes a cancel frame: the sender will not write.
func (r *receiver) abandon(s *session, h header) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.live[h.Transfer]
	if !ok || h.Generation != r.generation || h.Attempt != t.attempt ||
		r.stepLocked(t, evAbandon, "abandoned", errors.New("the sender gave up")) == ignore {
		s.drop("late cancel")
	}
}

// steadyReader reads from a peer that must make progress: each Read that returns bytes buys it
// another timeout.
type steadyReader struct {
	nc interface{ Read([]byte) (int, error) }
	// timeout is the longest silence; a silence of three quarters of it may already be too long,
	// since deadlines are moved only four times per timeout. Moving one costs about as much as a
	// small read.
	timeout time.Duration
	set     func(time.Time) error
	moved   time.Time
}

func (r *steadyReader) Read(p []byte) (int, error) {
	if now := time.Now(); now.Sub(r.moved) >= r.timeout/4 {
		if err := r.set(now.Add(r.timeout)); err != nil {
			return 0, err
		}
		r.moved = now
	}
	return r.nc.Read(p)
}
