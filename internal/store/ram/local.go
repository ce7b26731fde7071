// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"context"
	"errors"
	"net"

	"afterimage/internal/arena"
)

// Local is a Store inside the process: a Client and a Server that speak over pipes. It serves tests
// and single-process use; its connections are no sockets, so it works under testing/synctest.
type Local struct {
	*Client
	srv *Server
}

// NewLocal makes an empty Store whose Get reads into a.
func NewLocal(cfg Config, a *arena.Arena) (*Local, error) {
	srv, err := NewServer(cfg)
	if err != nil {
		return nil, err
	}
	srv.copies = true
	dial := func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		srv.admit(srv.ctx, far)
		return near, nil
	}
	c, err := Dial(context.Background(), ClientConfig{Arena: a, DialFunc: dial})
	if err != nil {
		return nil, errors.Join(err, srv.Close())
	}
	return &Local{Client: c, srv: srv}, nil
}

// Server returns the Store's other half, for its Stats.
func (l *Local) Server() *Server { return l.srv }

// Close implements store.Store. The objects are gone.
func (l *Local) Close() error { return errors.Join(l.Client.Close(), l.srv.Close()) }
