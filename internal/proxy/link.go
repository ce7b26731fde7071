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
	"strconv"
	"sync"
	"time"
)

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
	for _, s := range [...]string{req.Method, " ", req.URL.RequestURI(), " HTTP/1.1\r\nHost: ", req.URL.Host, "\r\nUser-Agent: afterimage\r\n"} {
		head = append(head, s...)
	}
	if req.Method == http.MethodPost {
		head = append(head, "Content-Length: "...)
		head = append(strconv.AppendInt(head, req.ContentLength, 10), "\r\n"...)
	}
	for name, values := range req.Header {
		for _, v := range values {
			if !validHeader(v) {
				return nil, fmt.Errorf("proxy: header %s has a value that cannot be sent", name)
			}
			head = append(append(append(append(head, name...), ": "...), v...), "\r\n"...)
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
