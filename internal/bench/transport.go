// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/transport"
)

// Targets of bench transport.
const (
	maxReadyUS     = 60      // from reserve to ready on one host, of any size
	minBareSpeed   = 0.9     // of a bare loop, in bytes per second
	maxHeapBytes   = 4096    // per transfer
	maxHeapGrowth  = 1024    // from the smallest to the largest size
	maxReadyUSHit  = 60      // of a Store hit on loan
	maxStoreRatio  = 1.3     // of a memcpy, for a Store hit that is copied
	maxDisplaced   = 0.1     // of all transfers that wait for memory, in places between coming and finishing
	maxSignalBytes = 1 << 10 // through the connection, for an object on loan
)

// TransportBench measures how embeddings get from an Encoder to a P/D, and from the Store to a P/D.
type TransportBench struct {
	Binary   string    // this program
	Env      []string  // of the processes; the configuration in it is left out
	Progress io.Writer // for people; nil for none
	Sizes    []int     // bytes of the payloads, multiples of 256, ascending
	Samples  int       // deliveries by loan, per size
	Slices   int       // of each road over TCP, in turn
	Slice    int       // bytes that a slice moves at least
	Queue    QueueBench
	Store    StoreBench // Sizes and Counts are those of one request

	// lender starts the sender of loans; nil runs Binary.
	lender func(ctx context.Context, socket string) (stop func(), err error)
}

// DefaultTransportBench returns the figures that the targets are stated for.
func DefaultTransportBench() TransportBench {
	store := DefaultStoreBench()
	store.Redis, store.Sizes, store.Counts, store.Seeding = false, []int{30 << 20}, []int{4}, Seeding{}
	return TransportBench{
		Sizes: []int{16 << 10, 1 << 20, 30 << 20, 64 << 20}, Samples: 400, Slices: 15, Slice: 128 << 20,
		Queue: QueueBench{Transfers: 64, Bytes: 1 << 20, Room: 8, Runs: 5}, Store: store,
	}
}

// Run measures.
func (b TransportBench) Run(ctx context.Context) (rep Report, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // as any process has it, whatever the environment says
	p := newProgress(b.Progress)
	defer p.end()
	rep = Report{Name: "transport", Note: "Loans between two processes; TCP over loopback with both ends in this process, as the bare loop has them; " + Machine()}
	for _, part := range []struct {
		name string
		run  func(context.Context) ([]Row, error)
	}{{"loans", b.loans}, {"TCP", b.tcp}, {"queue", b.Queue.run}, {"Store hits", b.storeHits}} {
		p.step("%s", part.name)
		rows, err := part.run(ctx)
		rep.Rows = append(rep.Rows, rows...)
		if err != nil {
			return rep, fmt.Errorf("bench: %s: %w", part.name, err)
		}
	}
	return rep, nil
}

// transportEngine is what the ends of the benchmark say they run.
const transportEngine = "bench"

// parcelRows is the number of rows of a payload.
func parcelRows(size int) int { return size / (cols * 4) }

// parcelWant describes the i-th object of a size.
func parcelWant(size, i int) transport.Want {
	rows := parcelRows(size)
	layout := embedding.Layout{Parts: []embedding.Part{{Rows: rows, Positions: rows}}}
	return transport.Want{
		Key:      embedding.Key(fmt.Sprintf("bench@id:transport/%d/%d", size, i)),
		Contract: embedding.Contract{Rows: rows, Cols: cols, DType: embedding.Float32},
		Protocol: embedding.A1,
		Bytes:    embedding.A1.ObjectBytes(layout, cols, embedding.Float32),
	}
}

// makeParcel builds the object that w describes.
func makeParcel(a *arena.Arena, w transport.Want) (*arena.Buf, error) {
	buf, err := a.Reserve(w.Bytes)
	if err != nil {
		return nil, err
	}
	rows := w.Contract.Rows
	layout := embedding.Layout{Parts: []embedding.Part{{Rows: rows, Positions: rows}}}
	payload := buf.Bytes()[embedding.A1.PayloadOffset(layout):]
	for i := range payload {
		payload[i] = byte(i) & 0x3f
	}
	meta := embedding.Meta{Rows: rows, Cols: cols, DType: embedding.Float32, Layout: layout}
	if err := embedding.A1.Seal(buf.Bytes(), w.Key, meta); err != nil {
		buf.Abort()
		return nil, err
	}
	buf.Commit()
	return buf, nil
}

// ends are a Receiver and a Sender of the benchmark, or one of them.
type ends struct {
	arena *arena.Arena
	bufs  []*arena.Buf
	stops []func() error
	reg   *prometheus.Registry
}

func newEnds(bytes int64) (*ends, error) {
	a, err := arena.New(arena.Config{Name: "afterimage-bench", Bytes: bytes, Mapped: true})
	return &ends{arena: a, reg: prometheus.NewRegistry()}, err
}

func (e *ends) receiver() (transport.Receiver, error) {
	r, err := transport.NewReceiver(transport.ReceiverConfig{
		Arena: e.arena, Address: "127.0.0.1:0", Local: true, Engine: transportEngine, Cols: cols,
		Logger: quietLog, Metrics: transport.NewMetrics(e.reg),
	})
	if err == nil {
		e.stops = append(e.stops, r.Close)
	}
	return r, err
}

// sender returns a Sender that lends from e's arena, if it may.
func (e *ends) sender(lends bool) (transport.Sender, error) {
	cfg := transport.SenderConfig{Engine: transportEngine, Cols: cols, Logger: quietLog}
	if lends {
		cfg.Arena = e.arena
	}
	s, err := transport.NewSender(cfg)
	if err == nil {
		e.stops = append(e.stops, s.Close)
	}
	return s, err
}

// parcel makes an object that e keeps.
func (e *ends) parcel(w transport.Want) (*arena.Buf, error) {
	buf, err := makeParcel(e.arena, w)
	if err == nil {
		e.bufs = append(e.bufs, buf)
	}
	return buf, err
}

func (e *ends) close() error {
	var errs []error
	for i := range e.stops {
		errs = append(errs, e.stops[len(e.stops)-1-i]())
	}
	for _, b := range e.bufs {
		b.Release()
	}
	return errors.Join(append(errs, e.arena.Detach())...)
}

// counter returns the sum of a series over its labels.
func (e *ends) counter(name, label, value string) (sum float64, err error) {
	families, err := e.reg.Gather()
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label && l.GetValue() == value {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum, err
}

// gauge returns the value of a series without labels.
func (e *ends) gauge(name string) (int, error) {
	families, err := e.reg.Gather()
	for _, f := range families {
		if f.GetName() == name {
			return int(f.GetMetric()[0].GetGauge().GetValue()), err
		}
	}
	return 0, err
}
