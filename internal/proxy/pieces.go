// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"io"
	"net"
	"sync"
)

// Pieces is a body that lies in several places.
type Pieces [][]byte

// Size returns how many bytes there are.
func (p Pieces) Size() (n int64) {
	for _, b := range p {
		n += int64(len(b))
	}
	return n
}

// Bytes returns them in one place.
func (p Pieces) Bytes() []byte { return bytes.Join(p, nil) }

// Body returns p, which lies in b, as the body of a call, with a share of b of its own until it is closed. b
// may be nil.
func (p Pieces) Body(b *Buffer) io.ReadCloser {
	own := make(net.Buffers, len(p)) // consumed by reading
	copy(own, p)
	if b == nil {
		return &piecesBody{Buffers: own, release: func() {}}
	}
	b.Retain()
	return &piecesBody{Buffers: own, release: sync.OnceFunc(b.Release)}
}

// piecesBody is the body of a call that lies in memory.
type piecesBody struct {
	net.Buffers
	release func()
}

// Read implements io.Reader.
func (b *piecesBody) Read(p []byte) (int, error) { return b.Buffers.Read(p) }

// Close implements io.Closer.
func (b *piecesBody) Close() error {
	b.release()
	return nil
}

func (b *piecesBody) pieces() net.Buffers { return b.Buffers }
