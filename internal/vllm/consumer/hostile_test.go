// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// TestHostile: whatever a peer says in place of a consumer is an error in little memory, and never a connection elsewhere.
func TestHostile(t *testing.T) {
	hello := string(greeting()) + "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REP"
	reply := func(s string) string {
		return hello + "\x01\x00\x02" + string(binary.BigEndian.AppendUint64(nil, uint64(len(s)))) + s
	}
	for name, c := range map[string]struct{ said, words string }{
		"nothing":             {"", "EOF"},
		"another protocol":    {"HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat(" ", 64), "no ZMTP"},
		"ZMTP 2":              {"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01" + strings.Repeat("\x00", 60), "no ZMTP"},
		"authentication":      {string(greeting()[:12]) + "CURVE" + strings.Repeat("\x00", 47), "no ZMTP"},
		"no READY":            {string(greeting()) + "\x00\x05hello", "READY"},
		"a huge command":      {string(greeting()) + "\x06\xff\xff\xff\xff\xff\xff\xff\xff", "at most"},
		"a huge reply":        {hello + "\x01\x00\x02\x00\x00\x00\x7f\xff\xff\xff\xff", "at most"},
		"no delimiter":        {hello + "\x00\x02{}", "empty part"},
		"three parts":         {hello + "\x01\x00\x01\x02{}\x00\x02{}", "empty part"},
		"endless empty parts": {hello + strings.Repeat("\x01\x00", 9), "empty part"},
		"cut off":             {hello + "\x01\x00\x00\x50{", "EOF"},
		"no JSON":             {reply("hello"), "answer"},
		"no envelope":         {reply("{}"), "neither"},
		"a refusal":           {reply(`{"ok": false, "error": "no"}`), "refuses: no"},
		"no shards":           {reply(`{"ok": true, "result": {"ports": []}}`), "0 shards"},
		"shards without end":  {reply(`{"ok": true, "result": {"ports": [` + strings.Repeat("1,", 64) + `1]}}`), "65 shards"},
		"a port that is none": {reply(`{"ok": true, "result": {"ports": [70000]}}`), "port 70000"},
		"ports that are text": {reply(`{"ok": true, "result": {"ports": ["a"]}}`), "result"},
	} {
		dials := 0
		cl := New(Config{CallTimeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler), Dial: func(context.Context, string) (net.Conn, error) {
			dials++
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				_, _ = io.CopyN(io.Discard, far, int64(len(greeting())+len(readyCommand())))
				first, rest := c.said, ""
				if strings.HasPrefix(c.said, hello) {
					first, rest = hello, c.said[len(hello):]
				}
				_, _ = io.WriteString(far, first)
				if rest != "" {
					_, _ = io.CopyN(io.Discard, far, int64(len(appendFrame(appendFrame(nil, flagMore, nil), 0, peersRequest))))
					_, _ = io.WriteString(far, rest)
				}
			}()
			return near, nil
		}})
		o := cl.Deliver(t.Context(), "tcp://192.0.2.1:1", []Item{{Transfer: "t", Hash: "h", Rows: 1, Cols: 1, DType: "float32", Size: 4}})[0]
		if o.Err == nil || !strings.Contains(o.Err.Error(), c.words) || dials != 1 {
			t.Errorf("%s: %v after %d connections, want an error with %q after one", name, o.Err, dials, c.words)
		}
		cl.Close()
	}
}

// TestHostileSegment: a Transfer Engine's word about itself is checked before it is used.
func TestHostileSegment(t *testing.T) {
	frame := func(doc string) string {
		return string(binary.LittleEndian.AppendUint64(nil, uint64(len(doc)+1))) + "\x01" + doc
	}
	for name, said := range map[string]string{
		"nothing": "", "empty": "\x00\x00\x00\x00\x00\x00\x00\x00\x01", "huge": "\xff\xff\xff\xff\xff\xff\xff\x7f\x01", "another kind": "\x03\x00\x00\x00\x00\x00\x00\x00\x02{}",
		"cut off": frame(`{}`)[:10], "no JSON": frame("hello"), "a port as text": frame(`{"tcp_data_port":"1"}`),
	} {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		go func() {
			_, _ = io.WriteString(far, said)
			far.Close()
		}()
		if s, err := handshake(t.Context(), near); err == nil {
			t.Errorf("%s: taken for %+v", name, s)
		}
	}
	s := &segment{}
	s.Buffers = append(s.Buffers, struct {
		Address uint64 `json:"addr"`
		Length  uint64 `json:"length"`
	}{1 << 20, 1 << 10})
	for _, at := range []uint64{0, 1<<20 - 1, 1<<20 + 1, 1<<64 - 1, 1<<64 - 1<<10} {
		if s.contains(at, 1<<10) {
			t.Errorf("%#x is taken to be in the buffer", at)
		}
	}
	if !s.contains(1<<20, 1<<10) || s.contains(1<<20, 1<<10+1) {
		t.Error("the buffer is not what it says")
	}
}
