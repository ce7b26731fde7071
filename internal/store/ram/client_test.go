// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// gated is a connection whose reads or writes wait while a gate is shut.
type gated struct {
	net.Conn
	g      *gate
	closed chan struct{}
	once   sync.Once
}

type gate struct {
	mu            sync.Mutex
	reads, writes chan struct{} // nil is open
	waiting       chan struct{} // one value per Read or Write that met a shut gate
}

func (g *gate) set(reads, writes chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reads, g.writes = reads, writes
}

func (c *gated) pass(reading bool) error {
	c.g.mu.Lock()
	ch := c.g.writes
	if reading {
		ch = c.g.reads
	}
	c.g.mu.Unlock()
	if ch == nil {
		return nil
	}
	c.g.waiting <- struct{}{}
	select {
	case <-ch:
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

func (c *gated) Read(b []byte) (int, error) {
	if err := c.pass(true); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *gated) Write(b []byte) (int, error) {
	if len(b) > 64<<10 { // bodies of PUTs only
		if err := c.pass(false); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

func (c *gated) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func gatedDial(path string) (*gate, func(context.Context) (net.Conn, error)) {
	g := &gate{waiting: make(chan struct{}, 100)}
	return g, func(context.Context) (net.Conn, error) {
		nc, err := net.Dial("unix", path)
		if err != nil {
			return nil, err
		}
		return &gated{Conn: nc, g: g, closed: make(chan struct{})}, nil
	}
}

// Case T09: after a call that was cancelled between its question and the answer, the next call gets
// its own answer.
func TestCancelledCallLeavesNoReplyBehind(t *testing.T) {
	path, a := socket(t), newArena(t, 8*mib)
	serve(t, path, Config{})
	g, dialer := gatedDial(path)
	c := dial(t, ClientConfig{Arena: a, ReadConns: 1, DialFunc: dialer})
	mustPut(t, c, a, "a", 1000, 'a')
	mustPut(t, c, a, "b", 1000, 'b')
	for range 20 {
		shut := make(chan struct{})
		g.set(shut, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan store.Got)
		go func() { done <- c.Get(ctx, []store.Want{{Key: "a", Bytes: 1000}})[0] }()
		<-g.waiting
		cancel()
		if got := <-done; !errors.Is(got.Err, store.ErrUnavailable) || !errors.Is(got.Err, context.Canceled) {
			t.Fatalf("cancelled Get: %v", got.Err)
		}
		g.set(nil, nil)
		if n, v, err := get(t, c, "b"); n != 1000 || v != 'b' || err != nil {
			t.Fatalf("Get after a cancelled one: %d bytes of %q, %v", n, v, err)
		}
	}
}

// liar answers hello and then whatever reply makes of a request.
func liar(t *testing.T, reply func(h head) []byte) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			f := frames{r: far}
			for {
				h, _, err := f.next()
				if err != nil {
					return
				}
				out := append(head{op: opHello, request: h.request, body: helloBytes}.append(nil), make([]byte, helloBytes)...)
				out[headBytes] = wireVersion
				if h.op != opHello {
					out = reply(h)
				}
				if _, err := far.Write(out); err != nil {
					return
				}
			}
		}()
		return near, nil
	}
}

// A reply that is not about the question closes the connection and gives nobody foreign bytes.
func TestLyingStore(t *testing.T) {
	f := func(name string, reply func(h head) []byte) {
		t.Helper()
		a := newArena(t, mib)
		c := dial(t, ClientConfig{Arena: a, DialFunc: liar(t, reply)})
		got := c.Get(t.Context(), []store.Want{{Key: "key", Bytes: 10}})[0]
		if !errors.Is(got.Err, store.ErrUnavailable) || !errors.Is(got.Err, errProtocol) {
			t.Errorf("%s: %v, want a protocol error", name, got.Err)
		}
		if st := a.Stats(); st.Reserved+st.Committed != 0 {
			t.Errorf("%s: arena holds %+v", name, st)
		}
		c.Close()
	}
	ok := func(h head) []byte { return head{op: opGet, request: h.request, count: 1}.append(nil) }
	f("other request", func(h head) []byte { h.request++; return ok(h) })
	f("other op", func(h head) []byte { return head{op: opExists, request: h.request, count: 1}.append(nil) })
	f("other count", func(h head) []byte { return head{op: opGet, request: h.request, count: 2}.append(nil) })
	f("other key", func(h head) []byte { return append(appendItem(ok(h), statusOK, "yek", 3), "abc"...) })
	f("longer key", func(h head) []byte { return append(appendItem(ok(h), statusOK, "key2", 3), "abc"...) })
	f("too large", func(h head) []byte { return appendItem(ok(h), statusOK, "key", 11) })
	f("absurd size", func(h head) []byte { return appendItem(ok(h), statusOK, "key", -1) })
	f("unknown status", func(h head) []byte { return appendItem(ok(h), 77, "key", 3) })
	f("malformed", func(h head) []byte { return head{op: opGet, request: h.request, status: statusMalformed}.append(nil) })
}

// Case G03: a restarted Store is empty and another epoch; reads are misses and all goes on.
func TestStoreRestart(t *testing.T) {
	path, a := socket(t), newArena(t, mib)
	_, stop := serve(t, path, Config{})
	c := dial(t, ClientConfig{Path: path, Arena: a, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	mustPut(t, c, a, "k", 1000, 1)
	events := c.Events(t.Context())
	next := func() store.Event {
		t.Helper()
		select {
		case e := <-events:
			return e
		case <-time.After(10 * time.Second):
			t.Fatal("no event")
			return store.Event{}
		}
	}
	if e := next(); e.Kind != store.Resync {
		t.Errorf("first event %+v, want a resync", e)
	}
	mustPut(t, c, a, "l", 1000, 1)
	if e := next(); e.Kind != store.Stored || e.Key != "l" || e.Seq == 0 {
		t.Errorf("event %+v, want l stored", e)
	}
	stop()
	if _, _, err := get(t, c, "k"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Get without a Store: %v", err)
	}
	serve(t, path, Config{})
	eventually(t, "reconnect", func() bool {
		_, _, err := get(t, c, "k")
		if err == nil {
			t.Fatal("an object outlived its Store")
		}
		return errors.Is(err, store.ErrMiss)
	})
	if got := c.Stats().Restarts; got != 1 {
		t.Errorf("%d restarts seen, want 1", got)
	}
	for e := next(); e.Kind != store.Resync; e = next() {
		if e.Kind != store.Removed { // what the old Store dropped as it closed
			t.Errorf("event %+v after a restart, want a resync", e)
		}
	}
	mustPut(t, c, a, "k", 500, 2)
	if n, v, err := get(t, c, "k"); n != 500 || v != 2 || err != nil {
		t.Errorf("got %d bytes of %d, %v", n, v, err)
	}
}

// A restart between two calls costs neither of them: the connection that lay idle is replaced.
func TestIdleConnectionIsReplaced(t *testing.T) {
	path, a := socket(t), newArena(t, mib)
	_, stop := serve(t, path, Config{})
	c := dial(t, ClientConfig{Path: path, Arena: a})
	mustPut(t, c, a, "k", 100, 1)
	stop()
	serve(t, path, Config{})
	mustPut(t, c, a, "k", 100, 2)
	if _, v, err := get(t, c, "k"); v != 2 || err != nil {
		t.Errorf("got %d, %v", v, err)
	}
}

func TestClientBeforeServer(t *testing.T) {
	path, a := socket(t), newArena(t, mib)
	c := dial(t, ClientConfig{Path: path, Arena: a, MinBackoff: 50 * time.Millisecond})
	for range 1000 {
		if _, err := c.Exists(t.Context(), []embedding.Key{"k"}); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("Exists without a Store: %v", err)
		}
	}
	if st := c.Stats(); st.FastFails < 900 || !st.Open {
		t.Errorf("the breaker answered %d of 1000 calls, open %v", st.FastFails, st.Open)
	}
	serve(t, path, Config{})
	eventually(t, "first connection", func() bool {
		_, err := c.Exists(t.Context(), []embedding.Key{"k"})
		return err == nil
	})
	if got := c.Capabilities().MaxPut; got != 32<<20 {
		t.Errorf("MaxPut %d, want half of the Store", got)
	}
}

// A PUT that stands still holds no GET up.
func TestSlowPutsDoNotHoldGets(t *testing.T) {
	path, a := socket(t), newArena(t, 8*mib)
	serve(t, path, Config{})
	g, dialer := gatedDial(path)
	c := dial(t, ClientConfig{Arena: a, DialFunc: dialer})
	mustPut(t, c, a, "k", 100, 1)
	shut := make(chan struct{})
	g.set(nil, shut)
	var puts sync.WaitGroup
	for i := range 4 { // two on the way, two waiting for their turn
		b := filled(t, a, mib, 9)
		puts.Go(func() {
			defer b.Release()
			if err := c.Put(t.Context(), embedding.Key(rune('p'+i)), b, store.PutOptions{}); err != nil {
				t.Errorf("Put: %v", err)
			}
		})
	}
	<-g.waiting
	<-g.waiting
	for range 10 {
		if _, v, err := get(t, c, "k"); v != 1 || err != nil {
			t.Errorf("Get beside slow PUTs: %d, %v", v, err)
		}
	}
	g.set(nil, nil)
	close(shut)
	puts.Wait()
}

// A Store that accepts and never answers costs three timeouts, and then nothing.
func TestStalledStore(t *testing.T) {
	dialer := func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			io.Copy(io.Discard, far)
			far.Close()
		}()
		return near, nil
	}
	c := dial(t, ClientConfig{DialFunc: dialer, IOTimeout: 10 * time.Millisecond, MinBackoff: time.Hour, MaxBackoff: time.Hour})
	for range 10 {
		if _, err := c.Exists(t.Context(), []embedding.Key{"k"}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Exists: %v", err)
		}
	}
	if st := c.Stats(); st.Faults != failLimit || st.FastFails != 11-failLimit {
		t.Errorf("stats %+v, want %d faults (one of Dial) and the rest refused at once", st, failLimit)
	}
}

func TestPutWithoutRoomSendsNothing(t *testing.T) {
	path, a := socket(t), newArena(t, 8*mib)
	serve(t, path, Config{MaxBytes: 2 * mib})
	g, dialer := gatedDial(path)
	c := dial(t, ClientConfig{Arena: a, DialFunc: dialer})
	g.set(nil, make(chan struct{})) // a body would never leave
	if err := put(t, c, a, "k", mib+1, 1); !errors.Is(err, store.ErrRejected) {
		t.Errorf("Put of more than fits: %v", err)
	}
}
