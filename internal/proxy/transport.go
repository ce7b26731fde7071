// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
		if time.Since(l.since) < t.idle && quiet(l.conn) {
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

// link is a connection to a worker. It has one call at a time.
type link struct {
	t     *transport
	host  string
	conn  net.Conn
	in    *bufio.Reader
	since time.Time // idle since
	used  int       // calls that ended well
	heard bool      // a byte of the answer has come
	// headLeft is how much of an answer's head may still come; below 0, as for its body, there is no limit.
	headLeft int64
}

// maxHead bounds the head of an answer.
const maxHead = 1 << 20

// limited reads up to *left bytes from r.
type limited struct {
	r    io.Reader
	left *int64
}

func (l *limited) Read(p []byte) (int, error) {
	if *l.left < 0 {
		return l.r.Read(p)
	}
	if *l.left == 0 {
		return 0, fmt.Errorf("the head of the answer is larger than %d bytes", maxHead)
	}
	n, err := l.r.Read(p[:min(int64(len(p)), *l.left)])
	*l.left -= int64(n)
	return n, err
}

// roundTrip makes a call. After an error the connection is closed, and so is the request's body.
func (l *link) roundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	stop := context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })
	sent, err := l.write(req)
	var resp *http.Response
	if err == nil {
		resp, err = l.readHead(req)
	}
	if err != nil {
		stop()
		l.conn.Close()
		if sent != nil {
			<-sent
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	resp.Body = &answerBody{link: l, body: resp.Body, stop: stop, sent: sent, last: resp.Close, ctx: ctx}
	return resp, nil
}

// write sends the request. A large body is sent beside what follows; sent tells when, and how, that has ended.
func (l *link) write(req *http.Request) (sent chan error, err error) {
	head, err := requestHead(req)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	if req.Body == nil || req.ContentLength <= inlineBytes {
		err := l.send(head, req)
		if err != nil && l.answeredAnyway(req.Context()) {
			err = nil
		}
		return nil, err
	}
	sent = make(chan error, 1)
	go func() { sent <- l.send(head, req) }()
	return sent, nil
}

// answeredAnyway says whether the worker has answered a request that it did not take whole.
func (l *link) answeredAnyway(ctx context.Context) bool {
	if l.conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)) != nil {
		return false
	}
	_, err := l.in.Peek(1)
	// The context is asked last: what ends the call with it sets a deadline too, which must not be lifted.
	return err == nil && l.conn.SetReadDeadline(time.Time{}) == nil && ctx.Err() == nil
}

// inMemory is a body that lies in memory.
type inMemory interface{ pieces() net.Buffers }

// send writes head and body, and closes the body.
func (l *link) send(head []byte, req *http.Request) error {
	defer closeBody(req)
	if b, ok := req.Body.(inMemory); ok && req.ContentLength > joinBytes {
		out := append(net.Buffers{head}, b.pieces()...)
		_, err := out.WriteTo(l.conn)
		return err
	}
	if req.Body != nil && req.ContentLength <= joinBytes {
		head = append(head, make([]byte, req.ContentLength)...)
		n, err := io.ReadFull(req.Body, head[int64(len(head))-req.ContentLength:])
		if err != nil {
			return fmt.Errorf("the body ended after %d of %d bytes: %w", n, req.ContentLength, err)
		}
		_, err = l.conn.Write(head)
		return err
	}
	if _, err := l.conn.Write(head); err != nil || req.Body == nil {
		return err
	}
	n, err := io.Copy(l.conn, io.LimitReader(req.Body, req.ContentLength))
	if err == nil && n < req.ContentLength {
		err = fmt.Errorf("the body ended after %d of %d bytes", n, req.ContentLength)
	}
	return err
}

// errUnsized is a body whose length is not known. There is none here.
var errUnsized = errors.New("proxy: a request body of unknown length")

// requestHead returns the head of a request.
func requestHead(req *http.Request) ([]byte, error) {
	if req.Body != nil && req.Body != http.NoBody && req.ContentLength < 0 {
		return nil, errUnsized
	}
	head := make([]byte, 0, 512)
	head = fmt.Appendf(head, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: afterimage\r\n", req.Method, req.URL.RequestURI(), req.URL.Host)
	if req.Method == http.MethodPost {
		head = fmt.Appendf(head, "Content-Length: %d\r\n", req.ContentLength)
	}
	for name, values := range req.Header {
		for _, v := range values {
			if !validHeader(v) {
				return nil, fmt.Errorf("proxy: header %s has a value that cannot be sent", name)
			}
			head = fmt.Appendf(head, "%s: %s\r\n", name, v)
		}
	}
	return append(head, "\r\n"...), nil
}

// validHeader refuses what would end a header line.
func validHeader(v string) bool {
	for i := range len(v) {
		if c := v[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// readHead reads the head of the answer; answers that announce another are passed over.
func (l *link) readHead(req *http.Request) (*http.Response, error) {
	l.headLeft = maxHead
	defer func() { l.headLeft = -1 }()
	if _, err := l.in.Peek(1); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the connection was closed without an answer")
		}
		return nil, err
	}
	l.heard = true
	for {
		resp, err := http.ReadResponse(l.in, req)
		if err != nil || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
	}
}

// answerBody is the body of an answer. Read to its end, it gives the connection back; closed before, it closes it.
type answerBody struct {
	link *link
	body io.ReadCloser
	stop func() bool // of what ends the call with its context
	sent chan error  // of a body that was sent beside; nil if it was not
	last bool        // the worker wants no further call
	ctx  context.Context
	once sync.Once
}

// Read implements io.Reader.
func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	switch {
	case err == io.EOF:
		b.end(true)
	case err != nil:
		b.end(false)
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close implements io.Closer. When it returns, the body of the request is not read any more.
func (b *answerBody) Close() error {
	b.end(false)
	return nil
}

// sentGrace is how long a body may be on its way after the answer to it has ended.
const sentGrace = 50 * time.Millisecond

func (b *answerBody) end(whole bool) {
	b.once.Do(func() {
		reuse := b.stop() && whole && !b.last && b.link.in.Buffered() == 0
		if b.sent != nil && reuse {
			select {
			case err := <-b.sent:
				reuse = err == nil
				b.sent = nil
			case <-time.After(sentGrace): // answered before it had the whole body
				reuse = false
			}
		}
		if reuse {
			b.link.t.keep(b.link)
			return
		}
		b.link.conn.Close()
		if b.sent != nil {
			<-b.sent
		}
	})
}
