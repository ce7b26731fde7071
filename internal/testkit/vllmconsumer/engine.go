// SPDX-License-Identifier: Apache-2.0

package vllmconsumer

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
)

// serveHandshake answers one handshake of the Transfer Engine.
func (s *Shard) serveHandshake(nc net.Conn) {
	head := make([]byte, 9)
	if _, err := io.ReadFull(nc, head); err != nil {
		return
	}
	doc := make([]byte, binary.LittleEndian.Uint64(head)-1)
	if _, err := io.ReadFull(nc, doc); err != nil || !json.Valid(doc) {
		return
	}
	name := fmt.Sprintf("127.0.0.1:%d", s.engine)
	out := map[string]any{
		"buffers": []any{map[string]any{"addr": base, "length": s.c.cfg.PoolBytes, "name": name}}, "name": name, "protocol": "tcp",
		"tcp_data_host": "127.0.0.1", "tcp_data_port": s.data, "tcp_proto_version": 2,
	}
	if s.c.cfg.Segment != nil {
		s.c.cfg.Segment(out)
	}
	text, _ := json.Marshal(out)
	text = append(text, '\n')
	msg := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text)+1)), 1)
	_, _ = nc.Write(append(msg, text...))
	_, _ = io.Copy(io.Discard, nc) // until the other side closes
}

// serveData serves one data connection.
func (s *Shard) serveData(nc net.Conn) {
	for n := 0; ; n++ {
		head := make([]byte, 24)
		if _, err := io.ReadFull(nc, head); err != nil {
			return
		}
		size, at := binary.LittleEndian.Uint64(head), binary.LittleEndian.Uint64(head[8:])-base
		if head[16] != 0x81 {
			return
		}
		f := s.nextWrite()
		if pool := uint64(s.c.cfg.PoolBytes); f.Reject || size == 0 || at > pool || size > pool-at {
			_, _ = nc.Write([]byte("\x01\x00\x00\x00VTCM"))
			return
		}
		if !s.apply(nc, int(at), int(size), f) {
			return
		}
	}
}

// nextWrite counts a write and returns what befalls it.
func (s *Shard) nextWrite() DataFault {
	s.mu.Lock()
	n := s.writes
	s.writes++
	s.mu.Unlock()
	if s.c.cfg.Data == nil {
		return DataFault{}
	}
	return s.c.cfg.Data(s.n, n)
}

// apply takes one write in, piece by piece as it comes, and acknowledges it. It returns false to hang up.
func (s *Shard) apply(nc net.Conn, at, size int, f DataFault) bool {
	piece := make([]byte, 64<<10)
	for done := 0; done < size; {
		want := min(len(piece), size-done)
		if f.CutAfter > 0 {
			want = min(want, f.CutAfter-done)
		}
		got, err := nc.Read(piece[:want])
		s.mu.Lock()
		copy(s.rules.pool.mem[at+done:], piece[:got])
		s.mu.Unlock()
		done += got
		if err != nil || f.CutAfter > 0 && done == f.CutAfter {
			return false
		}
	}
	if f.NoStatus {
		_, _ = io.Copy(io.Discard, nc)
		return false
	}
	_, err := nc.Write([]byte("\x00\x00\x00\x00VTCM"))
	return err == nil
}
