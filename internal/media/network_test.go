// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// names is a Resolver: each name has a list of answers, used up one per question; the last stays.
type names struct {
	mu sync.Mutex
	m  map[string][][]netip.Addr
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	answers := n.m[host]
	if len(answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(answers) > 1 {
		n.m[host] = answers[1:]
	}
	return append([]netip.Addr(nil), answers[0]...), nil
}

func ips(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

const publicIP = "93.184.215.14"

// network is an internet in memory: every address that is dialled leads to one server.
type network struct {
	fetcher *Fetcher
	mu      sync.Mutex
	dialled []string
	conns   chan net.Conn
	done    chan struct{}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}
func (n *network) Close() error   { return nil }
func (n *network) Addr() net.Addr { return &net.TCPAddr{} }

func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	n.dialled = append(n.dialled, addr)
	n.mu.Unlock()
	near, far := net.Pipe()
	select {
	case n.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *network) dials() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.dialled...)
}

// newNetwork serves handler to a Fetcher for which ok.example and the rest of hosts are public names.
func newNetwork(t *testing.T, cfg FetcherConfig, hosts map[string][][]netip.Addr, handler http.HandlerFunc) *network {
	t.Helper()
	n := &network{conns: make(chan net.Conn), done: make(chan struct{})}
	if hosts == nil {
		hosts = map[string][][]netip.Addr{}
	}
	hosts["ok.example"] = [][]netip.Addr{ips(publicIP)}
	cfg.Dial, cfg.Resolver = n.dial, &names{m: hosts}
	n.fetcher = NewFetcher(cfg)
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(n) }()
	t.Cleanup(func() {
		n.fetcher.Close()
		close(n.done)
		_ = srv.Shutdown(context.Background()) // waits for the handlers
		<-served
	})
	return n
}

func body(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}
