// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// inbox reads the responses of a connection. A read that was interrupted goes on where it was.
type inbox struct {
	r    *bufio.Reader
	head [rpcResponseBytes]byte
	body []byte // of the response that is being read; nil before its head is complete
	n    int    // bytes that are there of head, or of body
}

func newInbox(r io.Reader) inbox { return inbox{r: bufio.NewReaderSize(r, 32<<10)} }

// next reads one response. The error is of the stream; that of the call is in the reply.
func (in *inbox) next() (seq uint32, rep reply, err error) {
	h := in.head[:]
	if in.body == nil {
		if err := in.fill(h); err != nil {
			return 0, reply{}, err
		}
		body, attached := binary.LittleEndian.Uint32(h[8:]), binary.LittleEndian.Uint32(h[12:])
		if h[0] != rpcMagic || body > rpcMaxBody || attached > rpcMaxBody {
			return 0, reply{}, fmt.Errorf("mooncake: response head % x is not one of coro_rpc, or states over %d bytes", h, rpcMaxBody)
		}
		in.body, in.n = make([]byte, body+attached), 0
	}
	if err := in.fill(in.body); err != nil {
		return 0, reply{}, err
	}
	b := in.body[:binary.LittleEndian.Uint32(h[8:])] // this protocol attaches nothing; what is there is skipped
	in.body, in.n = nil, 0
	seq = binary.LittleEndian.Uint32(h[4:])
	if h[2] == 0 {
		return seq, reply{body: b}, nil
	}
	return seq, reply{err: &rpcError{h[2], errorText(h[2], b)}}, nil
}

// fill reads what is missing of b.
func (in *inbox) fill(b []byte) error {
	for in.n < len(b) {
		n, err := in.r.Read(b[in.n:])
		in.n += n
		if err != nil && in.n < len(b) {
			return err
		}
	}
	return nil
}

// errorText reads the text of an error, which only helps people.
func errorText(code byte, b []byte) string {
	if code == rpcLongError {
		return fmt.Sprintf("%q", b)
	}
	d := newDecoder(b, tStr)
	text := d.str()
	if d.err != nil {
		return fmt.Sprintf("%q", b)
	}
	return text
}
