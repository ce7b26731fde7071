// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// response writes a frame as mooncake_client does.
func response(code byte, seq uint32, body []byte) []byte {
	h := make([]byte, rpcResponseBytes, rpcResponseBytes+len(body))
	h[0], h[2] = rpcMagic, code
	binary.LittleEndian.PutUint32(h[4:], seq)
	binary.LittleEndian.PutUint32(h[8:], uint32(len(body)))
	return append(h, body...)
}

func stringBody(s string) []byte {
	e := newEncoder(tStr, len(s), len(s))
	e.str(s)
	return e.b
}

func TestReadReply(t *testing.T) {
	in := newInbox(bytes.NewReader(append(response(0, 7, []byte("body")), response(4, 8, stringBody("layout"))...)))
	if seq, rep, err := in.next(); seq != 7 || string(rep.body) != "body" || rep.err != nil || err != nil {
		t.Errorf("got %d, %q, %v, %v", seq, rep.body, rep.err, err)
	}
	seq, rep, err := in.next()
	var re *rpcError
	if seq != 8 || err != nil || !errors.As(rep.err, &re) || re.code != 4 || re.text != "layout" {
		t.Errorf("got %d, %v, %v, want error 4 \"layout\"", seq, rep.err, err)
	}
}

func TestReadReplyRefuses(t *testing.T) {
	f := func(name string, frame []byte, want string) {
		t.Helper()
		in := newInbox(bytes.NewReader(frame))
		if _, _, err := in.next(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	huge := response(0, 1, nil)
	binary.LittleEndian.PutUint32(huge[8:], rpcMaxBody+1)
	f("huge body", huge, "4194304 bytes")
	f("wrong magic", append([]byte{22}, response(0, 1, nil)[1:]...), "coro_rpc")
	f("cut head", response(0, 1, nil)[:15], "EOF")
	f("cut body", response(0, 1, []byte("body"))[:18], "EOF")
}

// Whatever a server sends, reading ends, and takes no more memory than the limit.
func FuzzReadReply(f *testing.F) {
	f.Add(response(0, 1, []byte("body")))
	f.Add(response(4, 1, stringBody("no")))
	f.Add(response(255, 1, []byte{1, 2, 3}))
	f.Fuzz(func(t *testing.T, b []byte) {
		in := newInbox(bytes.NewReader(b))
		for {
			_, rep, err := in.next()
			if err != nil {
				return
			}
			if rep.err == nil && len(rep.body) > len(b) {
				t.Fatalf("body of %d bytes from a stream of %d", len(rep.body), len(b))
			}
		}
	})
}
