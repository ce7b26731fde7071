// SPDX-License-Identifier: Apache-2.0

package quick

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// pair returns the ends of a unix socket.
func pair(t *testing.T) (near, far *net.UnixConn) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); other.Close() })
	return nc.(*net.UnixConn), other.(*net.UnixConn)
}

// policies are those under which a connection has to do the same.
var policies = map[string]*Policy{"asleep": nil, "awake": {budget: long}, "asleep after a while": {budget: brief}}

func TestMessages(t *testing.T) {
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			a, b := New(near, policy.Poll()), New(far, policy.Poll())
			echoed := make(chan error, 1)
			go func() {
				p := make([]byte, MaxBytes)
				for {
					n, err := b.Read(p)
					if err == nil {
						_, err = b.Write(p[:n])
					}
					if err != nil {
						echoed <- err
						return
					}
				}
			}()
			for i := range 100 {
				said := bytes.Repeat([]byte{byte(i)}, 1+i)
				if n, err := a.Write(said); n != len(said) || err != nil {
					t.Fatalf("wrote %d of %d bytes: %v", n, len(said), err)
				}
				heard := make([]byte, len(said))
				if _, err := io.ReadFull(a, heard); err != nil || !bytes.Equal(heard, said) {
					t.Fatalf("read %x, want %x: %v", heard, said, err)
				}
			}
			near.Close()
			if err := <-echoed; !errors.Is(err, io.EOF) {
				t.Errorf("the end of the connection reads as %v, want io.EOF", err)
			}
		})
	}
}

func TestWriteWaitsForRoom(t *testing.T) {
	near, far := pair(t)
	a := New(near, Poll{})
	const total = 8 << 20 // more than any socket buffers
	wrote := make(chan error, 1)
	go func() {
		n, err := a.Write(make([]byte, total))
		if err == nil && n != total {
			err = io.ErrShortWrite
		}
		wrote <- err
	}()
	if _, err := io.CopyN(io.Discard, far, total); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

func TestDeadlinesAndCloseAreThoseOfTheConnection(t *testing.T) {
	for name, policy := range map[string]*Policy{"asleep": nil, "asleep after a while": {budget: brief}} {
		near, far := pair(t)
		a := New(near, policy.Poll())
		if err := near.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: past the deadline Read says %v", name, err)
		}
		if err := near.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		far.Close()
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: behind the end Read says %v", name, err)
		}
		near.Close()
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: Read of a closed connection says %v", name, err)
		}
		if _, err := a.Write(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: Write to a closed connection says %v", name, err)
		}
	}
}

func TestOtherConnectionsHaveNone(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if New(a, Poll{}) != nil {
		t.Error("a pipe has no socket to read")
	}
	near, _ := pair(t)
	near.Close()
	if c := New(near, Poll{}); c != nil {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read of a closed connection says %v", err)
		}
	}
}
