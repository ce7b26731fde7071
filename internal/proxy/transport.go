// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"time"
)

// NewClient returns a client for calls to workers. Connections are kept idle for up to idle, which must be
// below the time-out of the workers' own servers: a pooled connection is given up here before it is closed
// there. With idle below 0, each call has a connection of its own. There is no time-out over a whole call:
// answers stream for as long as they stream. Dialling is bounded, and so is each call by its context.
func NewClient(idle time.Duration) *http.Client {
	return &http.Client{
		Transport:     newTransport(idle),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Limits of a transport.
const (
	dialTimeout = 2 * time.Second
	maxIdle     = 256 // connections per worker
	// inlineBytes is the largest body that is written before the answer is looked at. A larger one is written
	// beside the wait for the answer, since a worker may refuse it without having read it.
	inlineBytes = 64 << 10
	// joinBytes is the largest body that is copied behind its head: one write costs less than a vector of them.
	joinBytes = 16 << 10
	// linkBuffer is what a connection reads through. There is one for every stream that stands still.
	linkBuffer = 2 << 10
)

// transport is an http.RoundTripper for plain HTTP/1.1. Against that of net/http, a call has no goroutines of its own,
// a body that lies in memory goes to the kernel where it lies, in one call with the head, and when a call has ended its
// body is not read any more.
type transport struct {
	idle   time.Duration
	dialer net.Dialer
	tls    *http.Transport // for https

	mu    sync.Mutex         // guards links and timer
	links map[string][]*link // idle ones by host, the latest used last
	timer *time.Timer        // closes the oldest; nil while none is idle
}

func newTransport(idle time.Duration) *transport {
	t := &transport{idle: idle, links: map[string][]*link{}, dialer: net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}}
	t.tls = &http.Transport{
		DialContext: t.dialer.DialContext, TLSHandshakeTimeout: 5 * time.Second, MaxIdleConnsPerHost: maxIdle,
		IdleConnTimeout: max(idle, 0), DisableKeepAlives: idle < 0, DisableCompression: true,
	}
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "http" {
		if b, ok := req.Body.(*piecesBody); ok {
			b.release = func() {} // net/http may close a body and still be reading it: its memory is not used again
		}
		return t.tls.RoundTrip(req)
	}
	for {
		l, err := t.link(req)
		if err != nil {
			closeBody(req)
			return nil, err
		}
		resp, err := l.roundTrip(req)
		if err == nil {
			return resp, nil
		}
		// A kept connection may have been closed by the worker as the call was sent: that says nothing.
		again := l.used > 0 && !l.heard && req.Context().Err() == nil && (req.Body == nil || req.GetBody != nil)
		if !again {
			return nil, err
		}
		if req.Body != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// link returns a connection to the request's host: an idle one that is still whole, or a new one.
func (t *transport) link(req *http.Request) (*link, error) {
	host := req.URL.Host
	for {
		l := t.takeIdle(host)
		if l == nil {
			break
		}
		if time.Since(l.since) < t.idle && Quiet(l.conn) {
			return l, nil
		}
		l.conn.Close()
	}
	at := host
	if req.URL.Port() == "" {
		at = net.JoinHostPort(req.URL.Hostname(), "80")
	}
	conn, err := t.dialer.DialContext(req.Context(), "tcp", at)
	if err != nil {
		return nil, err
	}
	tune(conn)
	l := &link{t: t, host: host, conn: conn}
	l.in = bufio.NewReaderSize(&limited{r: conn, left: &l.headLeft}, linkBuffer)
	return l, nil
}

func (t *transport) takeIdle(host string) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.links[host]
	if len(list) == 0 {
		return nil
	}
	l := list[len(list)-1]
	t.links[host] = list[:len(list)-1]
	return l
}

// keep takes back a connection whose answer was read to its end.
func (t *transport) keep(l *link) {
	l.since = time.Now()
	l.used++
	l.heard = false
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle < 0 || len(t.links[l.host]) >= maxIdle {
		l.conn.Close()
		return
	}
	t.links[l.host] = append(t.links[l.host], l)
	if t.timer == nil {
		t.timer = time.AfterFunc(t.idle, t.expire)
	}
}

// expire closes connections that were idle for too long.
func (t *transport) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := false
	for host, list := range t.links {
		old := 0
		for old < len(list) && time.Since(list[old].since) >= t.idle {
			list[old].conn.Close()
			old++
		}
		if t.links[host] = append([]*link(nil), list[old:]...); len(list) == old {
			delete(t.links, host)
		}
		left = left || len(list) > old
	}
	if t.timer = nil; left {
		t.timer = time.AfterFunc(t.idle/2+time.Millisecond, t.expire)
	}
}

// CloseIdleConnections is called by http.Client.
func (t *transport) CloseIdleConnections() {
	t.tls.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, list := range t.links {
		for _, l := range list {
			l.conn.Close()
		}
	}
	clear(t.links)
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}
