// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// open is a worker whose connections stay open: each answers its calls with answer, and after says what else happens
// on it then, and whether it takes more.
func open(t *testing.T, answer string, after func(conn net.Conn) (more bool)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for more := true; more; more = after(conn) {
					req, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, req.Body)
					io.WriteString(conn, answer)
				}
				<-ended
			})
		}
	})
	t.Cleanup(func() { ln.Close(); close(ended); conns.Wait() })
	return "http://" + ln.Addr().String()
}

// TestTransportKeepsCleanConnections: a connection is used again only if its answer was its last word and it was not said
// that no call may follow, though the worker leaves it open. Else a call would have the answer to another, or none.
func TestTransportKeepsCleanConnections(t *testing.T) {
	const ok, stray = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	answered, strayed := make(chan struct{}), make(chan struct{})
	f := func(name, url string, between func()) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c := NewClient(time.Minute)
		defer c.CloseIdleConnections()
		for range 3 {
			if got, err := do(t, c, ctx, url, nil, nil); got != "200 ok" || err != nil {
				t.Errorf("%s: got %q, %v", name, got, err)
			}
			between()
		}
	}
	f("with it", open(t, ok+stray, func(net.Conn) bool { return true }), func() {})
	late := open(t, ok, func(conn net.Conn) bool {
		<-answered
		io.WriteString(conn, stray)
		strayed <- struct{}{}
		return true
	})
	f("after it", late, func() { answered <- struct{}{}; <-strayed })
	f("no call after it", open(t, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", func(net.Conn) bool { return false }), func() {})
}
