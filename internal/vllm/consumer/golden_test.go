// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The files in testdata were recorded between programs of others: control.json and zmtp.json between vLLM's own client,
// with libzmq, and a P/D of vLLM 0.32.0; te_*.json between two Transfer Engines of each Mooncake release.

func golden[T any](t *testing.T, name string) (v T) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// controlFile is control.json.
type controlFile struct {
	Exchanges []struct{ Request, Response string }
}

// TestRequests: what is written is what vLLM's own client writes.
func TestRequests(t *testing.T) {
	recorded := map[string]bool{}
	for _, x := range golden[controlFile](t, "control.json").Exchanges {
		recorded[x.Request] = true
	}
	item := func(id, hash string) *delivery {
		return &delivery{Item: Item{Transfer: id, Hash: hash, Rows: 4, Cols: 8, DType: "bfloat16", Size: 2}}
	}
	at := func(id, reservationID string) *reserved {
		return &reserved{of: item(id, ""), answer: reservation{ID: reservationID}}
	}
	f := func(got []byte) {
		t.Helper()
		if !recorded[string(got)] {
			t.Errorf("%s was not recorded", got)
		}
	}
	f(peersRequest)
	f(statusRequest("tz1"))
	f(reserveRequest([]*delivery{item("tz1", "HZ1")}))
	f(completeRequest([]*reserved{at("tz1", "fe2050923993466483bdb29bb9b0f42e")}))
	f(abandonRequest("tb1"))
	pair := string(reserveRequest([]*delivery{item("tb1", "HB1"), item("tb2", "HB2")}))
	f([]byte(strings.Replace(pair, `"HB2", "nbytes": 64`, `"HB2", "nbytes": 65`, 1)))
	if got, want := string(completeRequest([]*reserved{at("a", "x"), at("b", "y")})),
		`{"op": "complete_batch", "items": [{"transfer_id": "a", "reservation_id": "x"}, {"transfer_id": "b", "reservation_id": "y"}]}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(statusRequest("a\"é")); !json.Valid([]byte(got)) {
		t.Errorf("%s is no JSON", got)
	}
}

// TestZMTP: the bytes of a connection are those of libzmq, but for the minor version and the pauses between messages.
func TestZMTP(t *testing.T) {
	type message struct{ Conn, From, Hex string }
	var want, replies []byte
	var requests [][]byte
	for _, m := range golden[[]message](t, "zmtp.json") {
		b, err := hex.DecodeString(m.Hex)
		switch {
		case err != nil:
			t.Fatal(err)
		case m.Conn != "libzmq":
		case m.From == "server":
			replies = append(replies, b...)
		default:
			want = append(want, b...)
		}
	}
	want[9+2] = 0                                                          // libzmq speaks 3.1 of the protocol, this side 3.0
	for rest := want[64+2+0x26:]; len(rest) > 0; rest = rest[4+rest[3]:] { // 01 00, 00 length, body
		requests = append(requests, rest[4:4+rest[3]])
	}
	near, far := net.Pipe()
	defer far.Close()
	got := make(chan []byte)
	go func() {
		b := make([]byte, len(want))
		n, _ := io.ReadFull(far, b)
		got <- b[:n]
	}()
	go func() { _, _ = far.Write(replies) }()
	q, err := newRequester(t.Context(), near)
	if err != nil {
		t.Fatal(err)
	}
	defer q.close()
	for n, request := range requests {
		reply, err := q.request(t.Context(), request)
		if err != nil || !bytes.HasPrefix(reply, []byte(`{"ok": true, "result": {`)) {
			t.Fatalf("reply %d: %s, %v", n, reply, err)
		}
	}
	if b := <-got; !bytes.Equal(b, want) || len(requests) != 3 {
		t.Errorf("%d requests\n got %x\nwant %x", len(requests), b, want)
	}
}

// engineFile is te_*.json.
type engineFile struct {
	Address   uint64 `json:"target_addr"`
	Port      int    `json:"target_rpc_port"`
	Exchanges []struct {
		Conn, From, Hex, Text string
	}
}

// TestTransferEngine: writes are those of Mooncake's own initiator, and only releases that acknowledge them are written
// to.
func TestTransferEngine(t *testing.T) {
	for name, fit := range map[string]bool{"0.3.10.post2": false, "0.3.11.post1": false, "0.3.12.post1": true, "0.3.13.post1": true} {
		g := golden[engineFile](t, "te_"+name+".json")
		var answer []byte
		writes := 0
		for _, x := range g.Exchanges {
			b, err := hex.DecodeString(x.Hex)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case strings.HasPrefix(x.Conn, "handshake") && x.From == "target":
				answer = b
			case fit && x.From == "initiator" && strings.HasPrefix(x.Conn, "data") && b[16] == opWrite:
				address := g.Address + uint64(writes)*(2<<20) // the second one is outside of the memory
				// Releases before 0.3.13 leave what was there in the bytes that are not read.
				if want := append(writeHead(address, 32)[:17], b[17:24]...); !bytes.Equal(b[:24], want) {
					t.Errorf("%s: write %d begins with %x, ours with %x", name, writes, b[:24], want)
				}
				writes++
			}
		}
		near, far := net.Pipe()
		go func() {
			head := make([]byte, 9)
			_, _ = io.ReadFull(far, head)
			_, _ = io.CopyN(io.Discard, far, int64(len(ownSegment)))
			_, _ = far.Write(answer)
			far.Close()
		}()
		s, err := handshake(t.Context(), near)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		address, err := s.dataAddress("127.0.0.1:1")
		if (err == nil) != fit || fit && !strings.HasPrefix(address, "127.0.0.1:1") {
			t.Errorf("%s: address %s, %v", name, address, err)
		}
		if fit && (writes != 2 || !s.contains(g.Address, 1<<20) || s.contains(g.Address, 1<<20+1) || s.contains(g.Address-1, 2) || s.contains(g.Address+2<<20, 32)) {
			t.Errorf("%s: %d writes recorded; the buffers are %+v", name, writes, s.Buffers)
		}
	}
}
