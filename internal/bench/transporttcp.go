// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/transport"
)

// tcpWindow and maxUnderWay bound how much is under way at once: what keeps a connection busy.
const (
	tcpWindow   = 8 << 20
	maxUnderWay = 64
)

func underWay(size int) int { return max(2, min(maxUnderWay, tcpWindow/size)) }

// tcp compares deliveries over TCP with a bare loop that moves the same bytes between the same arenas.
func (b TransportBench) tcp(ctx context.Context) (rows []Row, err error) {
	var least, most float64
	for i, size := range b.Sizes {
		run, err := b.newTCP(size)
		if err == nil {
			err = run.measure(ctx)
			err = errors.Join(err, run.close())
		}
		if err != nil {
			return rows, err
		}
		name := sizeName(size) + " over TCP"
		heap := Quantile(run.heap, 0.5)
		rows = append(rows,
			Against(name, "p50 us per transfer", Quantile(run.ours, 0.5), "bare loop", Quantile(run.bare, 0.5), 1/minBareSpeed),
			Absolute(name, "heap bytes per transfer", heap, maxHeapBytes))
		if i == 0 {
			least = heap
		}
		most = max(most, heap)
	}
	return append(rows, Absolute("all sizes over TCP", "heap bytes that the largest costs more", most-least, maxHeapGrowth)), nil
}

// tcpRun measures one size. Sender and receiver have an arena each, which the bare loop uses too.
type tcpRun struct {
	from, into *ends
	recv       transport.Receiver
	send       transport.Sender
	wants      []transport.Want
	near, far  net.Conn // of the bare loop
	transfers  int      // of a slice
	slices     int
	ours, bare []float64 // us per transfer
	heap       []float64 // bytes per transfer
}

func (b TransportBench) newTCP(size int) (*tcpRun, error) {
	n := underWay(size)
	r := &tcpRun{transfers: max(2*n, b.Slice/size), slices: b.Slices}
	room := int64(n * (parcelWant(size, 0).Bytes + 64))
	var err error
	if r.from, err = newEnds(room); err != nil {
		return r, err
	}
	if r.into, err = newEnds(room); err != nil {
		return r, errors.Join(err, r.from.close())
	}
	if err = r.connect(size, n); err != nil {
		return r, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *tcpRun) connect(size, n int) (err error) {
	for i := range n { // an object each: equal ones that are under way at once would share a transfer
		w := parcelWant(size, i)
		if _, err := r.from.parcel(w); err != nil {
			return err
		}
		r.wants = append(r.wants, w)
	}
	if r.recv, err = r.into.receiver(); err != nil {
		return err
	}
	if r.send, err = r.from.sender(false); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	if r.near, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		return err
	}
	r.far, err = ln.Accept()
	return err
}

func (r *tcpRun) close() error {
	for _, nc := range []net.Conn{r.near, r.far} {
		if nc != nil {
			nc.Close()
		}
	}
	return errors.Join(r.from.close(), r.into.close())
}

// measure runs both in turn, so that a slow spell of the machine meets both.
func (r *tcpRun) measure(ctx context.Context) error {
	each := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) / float64(r.transfers) }
	var before, after runtime.MemStats
	for i := range r.slices + 1 {
		start := time.Now()
		if err := r.loop(); err != nil {
			return err
		}
		bare := time.Since(start)
		runtime.ReadMemStats(&before)
		start = time.Now()
		if err := r.deliver(ctx); err != nil {
			return err
		}
		ours := time.Since(start)
		runtime.ReadMemStats(&after)
		if i > 0 { // the first warms up
			r.bare, r.ours = append(r.bare, each(bare)), append(r.ours, each(ours))
			r.heap = append(r.heap, float64(after.TotalAlloc-before.TotalAlloc)/float64(r.transfers))
		}
	}
	return nil
}

// loop is the bare loop: the same objects, one after the other, straight into memory of the receiver's
// arena. Nobody says or checks anything.
func (r *tcpRun) loop() error {
	n := r.wants[0].Bytes
	var rooms []*arena.Buf
	defer func() {
		for _, b := range rooms {
			b.Abort()
		}
	}()
	for range r.wants {
		b, err := r.into.arena.Reserve(n)
		if err != nil {
			return err
		}
		rooms = append(rooms, b)
	}
	read := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < r.transfers && err == nil; i++ {
			_, err = io.ReadFull(r.far, rooms[i%len(rooms)].Bytes())
		}
		read <- err
	}()
	for i := range r.transfers {
		if _, err := r.near.Write(r.from.bufs[i%len(r.wants)].Bytes()); err != nil {
			r.far.Close() // ends the reader
			return errors.Join(err, <-read)
		}
	}
	return <-read
}

// deliver takes the same objects from grant to claim, each as soon as the one before of the same name
// is through.
func (r *tcpRun) deliver(ctx context.Context) error {
	var left atomic.Int64
	left.Store(int64(r.transfers))
	errs := make([]error, len(r.wants))
	var wg sync.WaitGroup
	for i, w := range r.wants {
		wg.Go(func() {
			for left.Add(-1) >= 0 && errs[i] == nil {
				errs[i] = r.one(ctx, w, r.from.bufs[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (r *tcpRun) one(ctx context.Context, w transport.Want, buf *arena.Buf) error {
	tks, err := r.recv.Grant(ctx, []transport.Want{w})
	if err != nil {
		return err
	}
	if err := r.send.Send(ctx, tks[0].Grant(), buf); err != nil {
		return err
	}
	got, _, err := tks[0].Wait(ctx)
	if err == nil {
		got.Release()
	}
	return err
}
