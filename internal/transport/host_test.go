// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"afterimage/internal/arena"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/fdpass"
)

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(hostEnv)); err == nil {
		runHost(n)
		return
	}
	goleak.VerifyTestMain(m)
}

// hostRequest asks a host for one step. Both kinds of host answer in order.
type hostRequest struct {
	Op      string // grant, wait, used; send, reserve, held
	Name    string
	Rows    int
	Grant   control.Grant
	Timeout time.Duration
}

type hostResponse struct {
	Grant   control.Grant
	Error   string
	Class   string // of Error
	Took    time.Duration
	Foreign bool
	Bytes   int64
}

// hostSide is a receiver and a sender with a host of their own.
type hostSide struct {
	r       Receiver
	s       Sender
	arena   *arena.Arena
	tickets map[string]Ticket
}

// runHost is a host's process. Host 1 sends and host 2 receives.
func runHost(n int) {
	f := os.NewFile(3, "control")
	nc, err := net.FileConn(f)
	if err != nil {
		panic(err)
	}
	tun, err := openTunnel(hostAddress(n))
	if err != nil {
		fmt.Fprintf(nc, "\x01%v", err)
		return
	}
	if err := fdpass.Write(nc, []byte{0}, tun); err != nil {
		panic(err)
	}
	a, err := arena.New(arena.Config{Name: "host", Bytes: 64 << 20, Mapped: true})
	if err != nil {
		panic(err)
	}
	h := &hostSide{arena: a, tickets: make(map[string]Ticket)}
	quiet := slog.New(slog.DiscardHandler)
	if n == 2 {
		h.r, err = NewReceiver(ReceiverConfig{Arena: a, Address: hostAddress(n) + ":0", Local: true,
			Engine: testEngine, Cols: testCols, DType: embedding.Float16, Logger: quiet})
	} else {
		h.s, err = NewSender(SenderConfig{Arena: a, Engine: testEngine, Cols: testCols, DType: embedding.Float16, Logger: quiet})
	}
	if err != nil {
		panic(err)
	}
	dec, enc := json.NewDecoder(nc), json.NewEncoder(nc)
	for {
		var req hostRequest
		if err := dec.Decode(&req); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			panic(err)
		}
		if err := enc.Encode(h.do(req)); err != nil {
			panic(err)
		}
	}
}

func (h *hostSide) do(req hostRequest) (resp hostResponse) {
	ctx, cancel := context.WithTimeout(context.Background(), req.Timeout)
	defer cancel()
	start := time.Now()
	var err error
	switch wt := wantRows(req.Name, req.Rows); req.Op {
	case "grant":
		var tks []Ticket
		if tks, err = h.r.Grant(ctx, []Want{wt}); err == nil {
			h.tickets[req.Name], resp.Grant = tks[0], tks[0].Grant()
		}
	case "wait":
		var buf *arena.Buf
		if buf, _, err = h.tickets[req.Name].Wait(ctx); err == nil {
			if resp.Foreign = buf.Foreign(); !bytes.Equal(buf.Bytes(), hostObject(wt)) {
				err = errors.New("other bytes than were sent")
			}
			buf.Release()
		}
	case "reserve":
		_, err = announce(ctx, h.s, req.Grant)
	case "send":
		var buf *arena.Buf
		if buf, err = h.arena.Reserve(wt.Bytes); err == nil {
			copy(buf.Bytes(), hostObject(wt))
			buf.Commit()
			err = h.s.Send(ctx, req.Grant, buf)
			buf.Release()
		}
	case "used":
		st := h.arena.Stats()
		resp.Bytes = st.Reserved + st.Committed
	}
	resp.Took = time.Since(start)
	if err != nil {
		resp.Error, resp.Class = err.Error(), resultOf(err)
		if errors.Is(err, ErrMissing) {
			resp.Class = "missing"
		}
	}
	return resp
}

// hostObject is the object that both hosts know by its name.
func hostObject(w Want) []byte {
	obj := make([]byte, w.Bytes)
	payload := obj[embedding.A1.PayloadOffset(layout(w.Contract.Rows)):]
	for i := range payload {
		payload[i] = byte(i*7 + len(w.Key) + int(w.Key[len(w.Key)-1]))
	}
	meta := embedding.Meta{Rows: w.Contract.Rows, Cols: testCols, DType: embedding.Float16, Layout: layout(w.Contract.Rows)}
	if err := embedding.A1.Seal(obj, w.Key, meta); err != nil {
		panic(err)
	}
	return obj
}
