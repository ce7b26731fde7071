// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/testkit/faultconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

const (
	testEngine = "test engine 1"
	testCols   = 64
	testRows   = 16
)

var testSpace = embedding.Namespace{Model: "m", Encoder: "e", DType: embedding.Float16, Protocol: embedding.A1}

// world is a receiver and what a test needs to talk to it.
type world struct {
	*receiver
	t    *testing.T
	pipe *faultconn.Pipe // nil over TCP
	from *arena.Arena    // the senders'
}

// newWorld starts a receiver on an in-memory pipe with room for n test objects.
func newWorld(t *testing.T, n int, change ...func(*ReceiverConfig)) *world {
	t.Helper()
	pipe := faultconn.NewPipe()
	w := &world{t: t, pipe: pipe, from: newArena(t, 1<<20)}
	cfg := ReceiverConfig{
		Arena: newArena(t, int64(n*objectBytes(testRows))), Listener: pipe,
		Engine: testEngine, Cols: testCols, DType: embedding.Float16, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg)
	}
	r, err := newReceiver(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.receiver = r
	return w
}

func newArena(t testing.TB, n int64) *arena.Arena {
	t.Helper()
	a, err := arena.New(arena.Config{Name: "test", Bytes: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// close ends the world and checks that all memory is back.
func (w *world) close() {
	w.t.Helper()
	if err := w.receiver.Close(); err != nil {
		w.t.Errorf("close: %v", err)
	}
	w.wantInUse(0)
}

// inUse returns the bytes of the receiver's arena that are handed out.
func (w *world) inUse() int64 {
	st := w.cfg.Arena.Stats()
	return st.Reserved + st.Committed
}

// wantInUse checks how many bytes of the receiver's arena are handed out.
func (w *world) wantInUse(want int64) {
	w.t.Helper()
	if got := w.inUse(); got != want {
		w.t.Errorf("arena has %d bytes in use, want %d: %+v", got, want, w.cfg.Arena.Stats())
	}
}

func (w *world) sender(change ...func(*SenderConfig)) Sender {
	w.t.Helper()
	cfg := SenderConfig{Engine: testEngine, Cols: testCols, DType: embedding.Float16, Logger: slog.New(slog.DiscardHandler), Metrics: w.m}
	if w.pipe != nil {
		cfg.Dial = w.pipe.Dial
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := NewSender(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// announce has s say that the object of g is being made, as a Send does that asks before it copies, and prove
// life from then on.
func announce(ctx context.Context, s Sender, g control.Grant) (take func(why string), err error) {
	l, err := s.(*sender).connect(ctx, g.Address)
	if err != nil {
		return nil, err
	}
	id, err := parseTransfer(g.Transfer)
	if err != nil {
		return nil, err
	}
	f := flight{id, g.Attempt}
	if _, err := l.begin(f, g.Bytes); err != nil {
		return nil, err
	}
	l.post(header{Type: frameReserve, Transfer: id, Attempt: g.Attempt, Generation: g.Generation})
	return func(why string) { l.abandon(f, why) }, nil
}

// grant asks for one ticket per want, without waiting.
func (w *world) grant(wants ...Want) []*ticket {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	got, err := w.Grant(ctx, wants)
	if err != nil {
		w.t.Fatal(err)
	}
	out := make([]*ticket, len(got))
	for i, t := range got {
		out[i] = t.(*ticket)
	}
	return out
}

func objectBytes(rows int) int {
	return embedding.A1.ObjectBytes(layout(rows), testCols, embedding.Float16)
}

func layout(rows int) embedding.Layout {
	return embedding.Layout{Parts: []embedding.Part{{Rows: rows, Positions: rows}}}
}

// want describes the test object called name.
func want(name string) Want { return wantRows(name, testRows) }

func wantRows(name string, rows int) Want {
	return Want{
		Key:      testSpace.Key(embedding.Identifier(name)),
		Contract: embedding.Contract{Rows: rows, Cols: testCols, DType: embedding.Float16},
		Protocol: embedding.A1,
		Bytes:    objectBytes(rows),
	}
}

// object returns the bytes of the test object called name; they differ between names.
func object(t testing.TB, name string) []byte { return objectOf(t, want(name)) }

func objectOf(t testing.TB, w Want) []byte {
	t.Helper()
	obj := make([]byte, w.Bytes)
	var seed [32]byte
	copy(seed[:], w.Key[len(w.Key)-min(len(w.Key), 32):])
	payload := obj[embedding.A1.PayloadOffset(layout(w.Contract.Rows)):]
	if _, err := rand.NewChaCha8(seed).Read(payload); err != nil {
		t.Fatal(err)
	}
	meta := embedding.Meta{Rows: w.Contract.Rows, Cols: testCols, DType: embedding.Float16, Layout: layout(w.Contract.Rows)}
	if err := embedding.A1.Seal(obj, w.Key, meta); err != nil {
		t.Fatal(err)
	}
	return obj
}

// buf puts b into the senders' arena.
func (w *world) buf(b []byte) *arena.Buf { return bufIn(w.t, w.from, b) }

func bufIn(t testing.TB, a *arena.Arena, b []byte) *arena.Buf {
	t.Helper()
	buf, err := a.Reserve(len(b))
	if err != nil {
		t.Fatal(err)
	}
	copy(buf.Bytes(), b)
	buf.Commit()
	return buf
}

// wantObject claims tk, which must hold exactly obj.
func (w *world) wantObject(tk Ticket, obj []byte) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	buf, meta, err := tk.Wait(ctx)
	if err != nil {
		w.t.Errorf("wait: %v", err)
		return
	}
	defer buf.Release()
	if !bytes.Equal(buf.Bytes(), obj) {
		w.t.Error("the object that arrived is not the one that was sent")
	}
	if meta.Cols != testCols {
		w.t.Errorf("meta has %d columns, want %d", meta.Cols, testCols)
	}
}

// wantDropped checks how many frames the receiver dropped for a reason.
func (w *world) wantDropped(reason string, want int) {
	w.t.Helper()
	if got := testutil.ToFloat64(w.m.dropped.WithLabelValues(sideReceiver, reason)); got != float64(want) {
		w.t.Errorf("dropped %v frames as %q, want %d", got, reason, want)
	}
}

// rawPeer speaks frames by hand.
type rawPeer struct {
	t  *testing.T
	nc net.Conn
	r  *receiver
}

// raw connects and says hello.
func (w *world) raw() *rawPeer {
	w.t.Helper()
	p := w.mute()
	p.write(appendText(nil, header{Type: frameHello}, w.me.encode()))
	if h, text := p.read(); h.Type != frameHello || h.Status != statusComplete || h.Generation != w.generation {
		w.t.Fatalf("hello answered by %+v %q", h, text)
	}
	return p
}

// mute connects and says nothing.
func (w *world) mute() *rawPeer {
	w.t.Helper()
	nc, err := w.pipe.Dial(context.Background(), "", "")
	if err != nil {
		w.t.Fatal(err)
	}
	return &rawPeer{t: w.t, nc: nc, r: w.receiver}
}

func (p *rawPeer) write(b []byte) {
	p.t.Helper()
	if _, err := p.nc.Write(b); err != nil {
		p.t.Fatalf("write of %d bytes: %v", len(b), err)
	}
}

func (p *rawPeer) read() (header, string) {
	p.t.Helper()
	h, err := readHeader(p.nc)
	if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	text, err := readText(p.nc, h)
	if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	return h, string(text)
}

// data returns the header of a data frame for tk.
func data(tk *ticket) header {
	return header{Type: frameData, Transfer: tk.id, Attempt: tk.attempt,
		Generation: tk.r.generation, Length: uint64(tk.room.want.Bytes)}
}

// wantAck reads one frame, which must be the answer to the data frame h, with status st.
func (p *rawPeer) wantAck(h header, st status) {
	p.t.Helper()
	p.wantAnswer(frameComplete, h, st)
}

// wantAnswer reads one frame, which must be of type typ, about the transfer of h, with status st.
func (p *rawPeer) wantAnswer(typ frameType, h header, st status) {
	p.t.Helper()
	got, text := p.read()
	if got.Type != typ || got.Transfer != h.Transfer || got.Attempt != h.Attempt || got.Status != st {
		p.t.Errorf("got frame type %d, status %v (%s), want type %d with %v", got.Type, got.Status, text, typ, st)
	}
}

// wantAlive checks that the connection still answers.
func (p *rawPeer) wantAlive() {
	p.t.Helper()
	p.write(header{Type: framePing}.append(nil))
	if h, _ := p.read(); h.Type != framePong {
		p.t.Errorf("ping answered by type %d", h.Type)
	}
}

// wantClosed checks that the receiver hung up.
func (p *rawPeer) wantClosed() {
	p.t.Helper()
	if h, err := readHeader(p.nc); err == nil {
		p.t.Errorf("connection is open and sent %+v, want it closed", h)
	}
}

func registered(t *testing.T) *Metrics {
	t.Helper()
	return NewMetrics(prometheus.NewPedanticRegistry())
}

func name(i int) string { return fmt.Sprintf("object %d", i) }
