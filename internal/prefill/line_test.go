// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/testkit/faultconn"
	"afterimage/internal/transport"
)

// line is a P/D's memory and what wants it: requests, reads of the Store, and an Encoder that delivers.
type line struct {
	t         *testing.T
	p         *Prefill
	pool      *arena.Arena
	from      *arena.Arena
	send      transport.Sender
	residents *Residents
}

const (
	lineCols  = 4
	lineUnit  = 256 // bytes of an object of one unit, head and layout included
	lineUnits = 4   // of the pool
)

// lineItem is the picture called i, of one or two units.
func lineItem(i int) control.PrepareItem {
	rows := (lineUnit*(1+i%2) - 128) / (lineCols * 4)
	id := embedding.Identifier(fmt.Sprint(i))
	layout := embedding.Layout{Parts: []embedding.Part{{Rows: rows, Positions: rows}}}
	return control.PrepareItem{
		Identifier: id, Key: embedding.Key("line@id:" + string(id)), Tokens: rows,
		Contract: embedding.Contract{Rows: rows, Cols: lineCols, DType: embedding.Float32},
		Bytes:    embedding.A1.ObjectBytes(layout, lineCols, embedding.Float32),
	}
}

func newLine(t *testing.T) *line {
	t.Helper()
	mk := func(bytes int64) *arena.Arena {
		a, err := arena.New(arena.Config{Name: "line", Bytes: bytes})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	l := &line{t: t, pool: mk(lineUnits * lineUnit), from: mk(1 << 20)}
	l.residents = &Residents{Cache: cache.New(lineUnits * lineUnit)}
	pipe := faultconn.NewPipe()
	receiver, err := transport.NewReceiver(transport.ReceiverConfig{
		Arena: l.pool, Evict: l.residents.Evict, Listener: pipe, Engine: "line", Cols: lineCols, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	l.send, err = transport.NewSender(transport.SenderConfig{Engine: "line", Cols: lineCols, Dial: pipe.Dial, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l.p = &Prefill{
		cfg:  Config{Receiver: receiver, Residents: l.residents, Arena: l.pool, Protocol: embedding.A1, Logger: slog.New(slog.DiscardHandler)},
		spec: engine.TextSpec{Cols: lineCols, DType: embedding.Float32, Context: 1 << 20},
	}
	return l
}

// close ends everything, after which no memory is in use.
func (l *line) close() {
	l.send.Close()
	l.p.cfg.Receiver.Close()
	l.residents.Cache.Close()
	for _, a := range []*arena.Arena{l.pool, l.from} {
		if err := a.Close(); err != nil {
			l.t.Error(err)
		}
	}
}

// deliver sends the object of it, as an Encoder would.
func (l *line) deliver(it control.PrepareItem, g control.Grant) {
	buf, err := l.from.Reserve(it.Bytes)
	if err != nil {
		l.t.Error(err)
		return
	}
	defer buf.Release()
	rows := it.Contract.Rows
	meta := embedding.Meta{Rows: rows, Cols: lineCols, DType: embedding.Float32,
		Layout: embedding.Layout{Parts: []embedding.Part{{Rows: rows, Positions: rows}}}}
	clear(buf.Bytes())
	if err := embedding.A1.Seal(buf.Bytes(), it.Key, meta); err != nil {
		l.t.Error(err)
	}
	buf.Commit()
	_ = l.send.Send(context.Background(), g, buf) // the request may have left
}

// request takes one request from its prepare call to its end. Some leave before their chat call.
func (l *line) request(r *rand.Rand, start time.Duration) error {
	var req control.PrepareRequest
	units := 0
	for _, i := range r.Perm(8) {
		if it := lineItem(i); len(req.Items) < 3 && units+1+i%2 <= lineUnits {
			req.Items, units = append(req.Items, it), units+1+i%2
		}
	}
	leaves, encode, hold := r.IntN(8) == 0, time.Duration(r.IntN(3))*time.Millisecond, time.Duration(r.IntN(20))*time.Millisecond
	time.Sleep(start)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	out, _, err := l.p.supply(ctx, &req)
	if err != nil {
		return err
	}
	entry := &prepared{items: req.Items, supplies: out, kept: l.residents}
	defer entry.cancel()
	if leaves {
		return nil
	}
	var encoder sync.WaitGroup
	defer encoder.Wait()
	for i := range out {
		if tk := out[i].ticket; tk != nil {
			encoder.Go(func() { time.Sleep(encode); l.deliver(req.Items[i], tk.Grant()) })
		}
	}
	for i := range out {
		h, _, err := out[i].wait(ctx)
		if err == nil {
			err = l.p.admit(&req.Items[i], &h)
		}
		if err != nil {
			return err
		}
		defer func() { h.buf.Release(); l.residents.settle() }() // one after the other, as a prompt is computed
	}
	time.Sleep(hold)
	return nil
}

// read takes memory as a read of the Store does: without a place in line, and not for long.
func (l *line) read(r *rand.Rand) {
	time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
	n := lineUnit * (1 + r.IntN(2))
	buf, err := l.pool.Reserve(n)
	if err != nil && (room{l.residents}).Evict(int64(n)) > 0 {
		buf, err = l.pool.Reserve(n)
	}
	if err == nil {
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
		buf.Abort()
	}
}

// TestNobodyWaitsForNothing: whatever requests, reads and evictions do to each other, a request waits for memory
// only as long as others use it. Each seed is one schedule; a stall shows as an hour of the test's clock.
func TestNobodyWaitsForNothing(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			l, r := newLine(t), rand.New(rand.NewPCG(seed, 0))
			const requests, reads = 40, 60
			spread := []int{1, 20, 400}[seed%3] // all at once, in a burst, or as they are served
			start := time.Now()
			var wg sync.WaitGroup
			for range requests {
				own, at := rand.New(rand.NewPCG(r.Uint64(), 1)), time.Duration(r.IntN(spread))*time.Millisecond
				wg.Go(func() {
					if err := l.request(own, at); err != nil {
						t.Errorf("seed %d, after %v: %v", seed, time.Since(start), err)
					}
				})
			}
			for range reads {
				own := rand.New(rand.NewPCG(r.Uint64(), 2))
				wg.Go(func() { l.read(own) })
			}
			wg.Wait()
			if d := time.Since(start); d > 10*time.Second {
				t.Errorf("seed %d: took %v", seed, d)
			}
			l.close()
		})
	}
}
