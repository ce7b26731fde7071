// SPDX-License-Identifier: Apache-2.0

package vllmconsumer

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// serveControl serves one connection of the control channel, as ZeroMQ's REP does.
func (s *Shard) serveControl(nc net.Conn) {
	in := bufio.NewReader(nc)
	if !greet(nc, in) {
		return
	}
	for {
		if flags, body, err := readFrame(in); err != nil || flags != 1 || len(body) != 0 {
			return
		}
		_, body, err := readFrame(in)
		if err != nil {
			return
		}
		reply, ok := s.fault(body)
		if !ok {
			return
		}
		if reply == "" { // nothing more comes on this connection
			_, _ = io.Copy(io.Discard, in)
			return
		}
		if _, err := nc.Write(appendReply(nil, reply)); err != nil {
			return
		}
	}
}

// greet exchanges greetings and says whether the other side is a REQ.
func greet(nc net.Conn, in *bufio.Reader) bool {
	greeting := append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 1}, make([]byte, 52)...)
	copy(greeting[12:], "NULL")
	if _, err := nc.Write(greeting); err != nil {
		return false
	}
	theirs := make([]byte, 64)
	if _, err := io.ReadFull(in, theirs); err != nil || theirs[0] != 0xff || theirs[9] != 0x7f || string(theirs[12:16]) != "NULL" {
		return false
	}
	if _, err := nc.Write([]byte("\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03REP")); err != nil {
		return false
	}
	flags, body, err := readFrame(in)
	return err == nil && flags&4 != 0 && strings.Contains(string(body), "REQ")
}

// appendReply appends a reply as two frames: an empty one, and the text.
func appendReply(out []byte, reply string) []byte {
	out = append(out, 1, 0)
	if len(reply) < 256 {
		out = append(out, 0, byte(len(reply)))
	} else {
		out = binary.BigEndian.AppendUint64(append(out, 2), uint64(len(reply)))
	}
	return append(out, reply...)
}

func readFrame(in *bufio.Reader) (flags byte, body []byte, err error) {
	head := make([]byte, 2, 9)
	if _, err := io.ReadFull(in, head); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1])
	if head[0]&2 != 0 {
		head = head[:9]
		if _, err := io.ReadFull(in, head[2:]); err != nil {
			return 0, nil, err
		}
		n = binary.BigEndian.Uint64(head[1:])
	}
	body = make([]byte, n)
	_, err = io.ReadFull(in, body)
	return head[0], body, err
}

// fault serves a request unless a fault befalls it. The reply is "" for silence; ok is false to hang up.
func (s *Shard) fault(request []byte) (reply string, ok bool) {
	var op struct{ Op string }
	_ = json.Unmarshal(request, &op)
	f := Sound
	if s.c.cfg.Control != nil {
		f = s.c.cfg.Control(s.n, op.Op)
	}
	switch f {
	case HangUp:
		return "", false
	case Nonsense:
		return "nonsense", true
	case Silence:
		s.Answer(request)
		return "", true
	case Late:
		<-s.c.thaw
		s.Answer(request)
		return "", true
	}
	return s.Answer(request), true
}

// body is what any request may have.
type body struct {
	Op          string            `json:"op"`
	Transfer    *string           `json:"transfer_id"`
	Hash        string            `json:"mm_hash"`
	Bytes       int               `json:"nbytes"`
	Shape       []int             `json:"shape"`
	DType       string            `json:"dtype"`
	Reservation string            `json:"reservation_id"`
	Abandon     bool              `json:"abandon"`
	Refresh     bool              `json:"refresh"`
	Items       []json.RawMessage `json:"items"`
}

// Answer serves one request and returns the reply, as the original writes it.
func (s *Shard) Answer(request []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b body
	if json.Unmarshal(request, &b) != nil {
		return refusal("malformed control request")
	}
	s.ops = append(s.ops, b.Op)
	s.rules.expire(time.Now())
	result, err := s.result(b)
	if err != nil {
		return refusal(err.Error())
	}
	return `{"ok": true, "result": ` + result + `}`
}

func refusal(text string) string {
	t, _ := json.Marshal(text)
	return `{"ok": false, "error": ` + string(t) + `}`
}

func (s *Shard) result(b body) (string, error) {
	switch b.Op {
	case "peers":
		ports := make([]string, len(s.c.Shards))
		for i, x := range s.c.Shards {
			ports[i] = fmt.Sprint(x.control)
		}
		return `{"ports": [` + strings.Join(ports, ", ") + `]}`, nil
	case "event_port":
		return "1", nil
	case "reserve_batch", "complete_batch":
		return s.batch(b)
	case "status", "reserve", "complete", "cancel":
	default:
		return "", fmt.Errorf("unknown control op: '%s'", b.Op)
	}
	if b.Transfer == nil {
		return "", fmt.Errorf("'transfer_id'")
	}
	switch b.Op {
	case "status":
		return s.status(*b.Transfer), nil
	case "reserve":
		return s.reserve(b)
	case "complete":
		done, became := s.rules.complete(*b.Transfer, b.Reservation)
		return fmt.Sprintf(`{"completed": %t, "became_ready": %t}`, done, became), nil
	}
	return fmt.Sprintf(`{"cancelled": %t}`, s.rules.cancel(*b.Transfer, b.Reservation, b.Abandon, b.Refresh)), nil
}

// batch serves the items one by one; those of a reserve have envelopes of their own.
func (s *Shard) batch(b body) (string, error) {
	op := strings.TrimSuffix(b.Op, "_batch")
	var out []string
	for _, raw := range b.Items {
		it := body{}
		if err := json.Unmarshal(raw, &it); err != nil {
			return "", err
		}
		it.Op = op
		result, err := s.result(it)
		switch {
		case err != nil:
			result = refusal(err.Error())
		case op == "reserve":
			result = `{"ok": true, "result": ` + result + `}`
		}
		out = append(out, result)
	}
	return `{"items": [` + strings.Join(out, ", ") + `]}`, nil
}

func (s *Shard) reserve(b body) (string, error) {
	g, err := s.rules.reserve(*b.Transfer, payload{b.Hash, b.Bytes, b.Shape, b.DType})
	if err != nil {
		return "", err
	}
	if g.cancelled {
		return fmt.Sprintf(`{"reservation_id": "", "dst_session": "", "dst_ptr": 0, "nbytes": %d, "write": false, "ready": false, "cancelled": true}`, b.Bytes), nil
	}
	session := fmt.Sprintf("127.0.0.1:%d", s.engine)
	if s.c.cfg.Session != nil {
		session = s.c.cfg.Session(session)
	}
	return fmt.Sprintf(`{"reservation_id": "%s", "dst_session": "%s", "dst_ptr": %d, "nbytes": %d, "write": %t, "ready": %t, "cached": %t}`,
		g.r.id, session, base+g.r.at.off, b.Bytes, g.write, g.r.state == ready, g.cached), nil
}

func (s *Shard) status(transfer string) string {
	r := s.rules.transfers[transfer]
	if r == nil || r.at == nil {
		return "null"
	}
	shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(r.shape), "[]"), " ", ", ")
	return fmt.Sprintf(`{"mm_hash": "%s", "ready": %t, "reservation_id": "%s", "nbytes": %d, "shape": [%s], "dtype": "%s"}`,
		r.hash, r.state == ready, r.id, r.bytes, shape, r.dtype)
}
