// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Times of a server. There is none for a whole request: an answer may stream for as long as its
// client reads it.
const (
	headerTimeout = 10 * time.Second // to send the request's header
	idleTimeout   = 2 * time.Minute  // between requests of a connection
	writeTimeout  = 30 * time.Second // for one write; a client that reads nothing is cut off after it
	maxHeader     = 64 << 10
)

// Serve answers requests on ln, which it closes, until ctx ends. It then takes no more and gives
// those in work until drain has passed. It returns nil after an orderly end, and an error when
// requests had to be cut off or ln failed.
//
// Contexts of requests do not end with ctx, so that requests in work can finish; they end when the
// client goes away or is cut off.
func Serve(ctx context.Context, ln net.Listener, handler http.Handler, drain time.Duration) error {
	return ServeUntil(ctx, ln, handler, func() time.Duration { return drain })
}

// ServeUntil is Serve where the time to drain is known only when ctx has ended.
func ServeUntil(ctx context.Context, ln net.Listener, handler http.Handler, drain func() time.Duration) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	srv := &http.Server{
		Handler:           Rolling(handler, writeTimeout),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	unused := &unusedConns{conns: map[net.Conn]struct{}{}}
	srv.ConnState = unused.track
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("admin: serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	left := drain()
	patience, cancel := context.WithTimeout(base, left)
	defer cancel()
	unused.close()
	err := srv.Shutdown(patience)
	if err != nil {
		cut()
		_ = srv.Close()
		err = fmt.Errorf("admin: requests on %s were cut off after %v: %w", ln.Addr(), left, err)
	}
	if serveErr := <-failed; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// unusedConns closes connections that never carried a request when a server stops. Clients open some in
// advance, and Shutdown would wait for them as if they had work.
type unusedConns struct {
	mu       sync.Mutex // guards the fields below
	conns    map[net.Conn]struct{}
	stopping bool
}

func (u *unusedConns) track(c net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.conns, c)
	case u.stopping:
		c.Close()
	default:
		u.conns[c] = struct{}{}
	}
}

func (u *unusedConns) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopping = true
	for c := range u.conns {
		c.Close()
	}
}

// Rolling gives every single write of handler's answers, and every single read of a request's body,
// timeout to get through. A stream of any length lives as long as its client keeps up.
func Rolling(handler http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.Body != nil && r.Body != http.NoBody {
			body := &rollingBody{ReadCloser: r.Body, rc: rc, timeout: timeout}
			body.extend()
			// Of a copy: the server answers at once, and closes, where too much of its own is unread to be passed over.
			own := *r
			own.Body = body
			r = &own
		}
		handler.ServeHTTP(&rollingWriter{ResponseWriter: w, rc: rc, timeout: timeout}, r)
	})
}

// rollingBody moves the read deadline ahead after each read, so that a handler may set a tighter one
// before the next. What a handler leaves unread is under the last deadline: the server reads on before
// it answers, and would wait for ever for a client that does not send.
type rollingBody struct {
	io.ReadCloser
	rc      *http.ResponseController
	timeout time.Duration
}

func (b *rollingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF): // lifted: the server goes on reading, to see the client leave
		_ = b.rc.SetReadDeadline(time.Time{})
	case n > 0:
		b.extend()
	}
	return n, err
}

func (b *rollingBody) extend() { _ = b.rc.SetReadDeadline(time.Now().Add(b.timeout)) }

// rollingWriter moves the write deadline ahead of each write.
type rollingWriter struct {
	http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
}

// Unwrap lets http.ResponseController find the connection's own writer.
func (w *rollingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *rollingWriter) Write(p []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(p)
}

// Flush sends what is buffered, and so is a write too.
func (w *rollingWriter) Flush() {
	w.extend()
	_ = w.rc.Flush()
}

// FlushError is Flush for http.ResponseController.
func (w *rollingWriter) FlushError() error {
	w.extend()
	return w.rc.Flush()
}

// extend fails only on writers without a deadline, such as those of tests, which need none.
func (w *rollingWriter) extend() { _ = w.rc.SetWriteDeadline(time.Now().Add(w.timeout)) }
