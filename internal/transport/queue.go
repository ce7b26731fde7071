// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/quick"
)

// A batch may take writeGrace plus its size at slowestBytes per second to leave, so that a receiver that
// stops reading is noticed, and a slow network is not.
const (
	writeGrace   = 5 * time.Second
	slowestBytes = 4 << 20
)

// batchBytes and batchParcels bound what one system call takes out of the queue.
const (
	batchBytes   = 1 << 20
	batchParcels = 64
)

// parcel is a frame in the queue of a link.
type parcel struct {
	flight flight
	head   [headerBytes + lendBytes]byte
	n      int        // bytes of head
	text   string     // body, where it is text
	buf    *arena.Buf // body, of data; a reference of its own
}

func (p *parcel) size() int {
	if p.buf != nil {
		return p.n + p.buf.Len()
	}
	return p.n + len(p.text)
}

func (p *parcel) release() {
	if p.buf != nil {
		p.buf.Release()
		p.buf = nil
	}
}

// send queues the object of a flight: as a loan if that is possible, else as data.
func (l *link) send(f flight, buf *arena.Buf) error {
	h := header{Type: frameData, Transfer: f.id, Attempt: f.attempt, Generation: l.generation}
	p := parcel{flight: f}
	l.mu.Lock()
	if l.lendLocked(f, buf) {
		h.Type, h.Length = frameComplete, lendBytes
		h.append(p.head[:0])
		binary.LittleEndian.PutUint64(p.head[headerBytes+lendOffset:], uint64(buf.Offset()))
		binary.LittleEndian.PutUint64(p.head[headerBytes+lendLength:], uint64(buf.Len()))
		p.n = headerBytes + lendBytes
		return l.submitUnlock(p, true)
	}
	l.mu.Unlock()
	obj := buf.Bytes()
	if h.Length = uint64(len(obj)); !embedding.IsA1(obj) {
		h.Check = xxh3.Hash(obj)
	}
	h.append(p.head[:0])
	p.n, p.buf = headerBytes, buf.Retain()
	l.mu.Lock()
	return l.submitUnlock(p, false)
}

// post queues a frame without a body.
func (l *link) post(h header) { l.postText(h, "") }

func (l *link) postText(h header, text string) {
	p := parcel{n: headerBytes, text: text[:min(len(text), maxTextBytes)]}
	h.Length = uint64(len(p.text))
	h.append(p.head[:0])
	l.mu.Lock()
	_ = l.submitUnlock(p, false) // a link that is broken needs no such frame
}

// submitUnlock queues a parcel and unlocks. If nobody writes, the caller may write it itself, at once,
// which saves a change of goroutines. That is for what is small: a write that blocks holds the caller
// though its ctx ends.
func (l *link) submitUnlock(p parcel, self bool) error {
	if l.err != nil {
		defer l.mu.Unlock()
		p.release()
		return l.err
	}
	l.queue = append(l.queue, p)
	if l.busy || !self || slices.ContainsFunc(l.queue, func(p parcel) bool { return p.buf != nil }) {
		poke(l.wake)
		l.mu.Unlock()
		return nil
	}
	batch := l.takeLocked(nil)
	l.mu.Unlock()
	return l.write(batch, nil)
}

// takeLocked makes the caller the writer and gives it the head of the queue, in into's memory.
func (l *link) takeLocked(into []parcel) []parcel {
	n, size := 0, 0
	for n < len(l.queue) && n < batchParcels && (n == 0 || size+l.queue[n].size() <= batchBytes) {
		size += l.queue[n].size()
		n++
	}
	batch := append(into[:0], l.queue[:n]...)
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	l.busy = true
	return batch
}

// write writes a batch, in vec's memory, and stops being the writer. A frame that is cut short leaves
// the stream out of step, so an error breaks the link, and nobody is the writer after that.
func (l *link) write(batch []parcel, vec [][]byte) error {
	bufs, size := vector(batch, vec)
	n := int64(0)
	err := l.allow(size)
	switch {
	case err != nil:
	case l.quick != nil && len(bufs) == 1 && size <= quick.MaxBytes:
		var short int
		short, err = l.quick.Write(bufs[0])
		n = int64(short)
	default:
		n, err = bufs.WriteTo(l.nc)
	}
	l.s.n.wire.Add(float64(n))
	for i := range batch {
		if p := &batch[i]; p.buf != nil && err == nil {
			l.s.n.copied.Add(float64(p.buf.Len()))
		}
		batch[i].release()
	}
	l.mu.Lock()
	l.busy = err != nil
	if l.asked.IsZero() {
		l.asked = time.Now()
	}
	if len(l.queue) > 0 {
		poke(l.wake)
	}
	l.mu.Unlock()
	if err != nil {
		return l.fail(fmt.Errorf("after %d of %d bytes: %w", n, size, err))
	}
	return nil
}

// vector returns what a batch consists of, in vec's memory, and its size.
func vector(batch []parcel, vec [][]byte) (bufs net.Buffers, size int) {
	bufs = vec[:0]
	for i := range batch {
		p := &batch[i]
		bufs = append(bufs, p.head[:p.n])
		if p.buf != nil {
			bufs = append(bufs, p.buf.Bytes())
		} else if p.text != "" {
			bufs = append(bufs, []byte(p.text))
		}
		size += p.size()
	}
	return bufs, size
}

// allow gives a batch of size bytes its time. A deadline that is a little later than it has to be may stay: to move
// one costs as much as a small write.
func (l *link) allow(size int) error {
	due := time.Now().Add(writeGrace + time.Duration(size)*time.Second/slowestBytes)
	if ahead := l.due.Sub(due); ahead >= 0 && ahead <= writeGrace {
		return nil
	}
	l.due = due.Add(writeGrace / 2)
	return l.nc.SetWriteDeadline(l.due)
}

// pump writes what those queue who do not write themselves.
func (l *link) pump() {
	batch, vec := make([]parcel, 0, batchParcels), make([][]byte, 0, 2*batchParcels)
	for {
		// Those who are about to queue go first: with 64 transfers of 16 KiB under way a system call then takes
		// 22 of them in the place of 2 (bench transport, 2 vCPU EPYC).
		runtime.Gosched()
		l.mu.Lock()
		mine := !l.busy && len(l.queue) > 0 && l.err == nil
		if mine {
			batch = l.takeLocked(batch)
		}
		l.mu.Unlock()
		if mine {
			_ = l.write(batch, vec) // an error has broken the link
			continue
		}
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
	}
}
