// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/embedding"
)

// rawConn speaks the wire format by hand.
type rawConn struct {
	*testing.T
	net.Conn
}

func rawDial(t *testing.T, path string) *rawConn {
	t.Helper()
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	return &rawConn{t, nc}
}

func (c *rawConn) send(h head, body ...byte) {
	c.Helper()
	h.body = len(body)
	if _, err := c.Write(append(h.append(nil), body...)); err != nil {
		c.Fatal(err)
	}
}

func (c *rawConn) recv() (head, []byte) {
	c.Helper()
	f := frames{r: c}
	h, body, err := f.next()
	if err != nil {
		c.Fatal(err)
	}
	return h, body
}

func (c *rawConn) hello() *rawConn {
	c.Helper()
	c.send(head{op: opHello, request: 1}, ask{}.append(nil)...)
	if h, _ := c.recv(); h.status != statusOK {
		c.Fatalf("hello: status %d", h.status)
	}
	return c
}

func reserveBody(k embedding.Key, n uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, n)
	b = append(b, make([]byte, 12)...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(k)))
	return append(append(b, 0, 0), k...)
}

// Case C02: whatever ends an upload half way, its room comes back and its key is free.
func TestUploadCutHalfWay(t *testing.T) {
	path, a := socket(t), newArena(t, 8*mib)
	srv, _ := serve(t, path, Config{IOTimeout: 100 * time.Millisecond})
	c := dial(t, ClientConfig{Path: path, Arena: a})
	for name, end := range map[string]func(*rawConn){
		"closed":  func(r *rawConn) { r.Close() },
		"stalled": func(*rawConn) {}, // the deadline of the reservation ends it
	} {
		t.Run(name, func(t *testing.T) {
			aborted := srv.Stats().Aborted
			r := rawDial(t, path).hello()
			r.send(head{op: opReserve, request: 2}, reserveBody("k", mib)...)
			if h, _ := r.recv(); h.status != statusOK {
				t.Fatalf("reserve: status %d", h.status)
			}
			r.Write(make([]byte, mib/2))
			if got := srv.Stats().UploadBytes; got != mib {
				t.Errorf("%d bytes reserved, want %d", got, mib)
			}
			mustPut(t, c, a, "k", mib, 7) // nobody waits for the other writer
			end(r)
			eventually(t, "room of the cut upload", func() bool {
				st := srv.Stats()
				return st.UploadBytes == 0 && st.Aborted == aborted+1
			})
			if n, v, err := get(t, c, "k"); n != mib || v != 7 || err != nil {
				t.Errorf("got %d bytes of %d, error %v", n, v, err)
			}
			c.Remove(t.Context(), []embedding.Key{"k"})
		})
	}
}

// Case T12: whatever comes in, the sender alone is cut off, with a reason.
func TestMalformedFrames(t *testing.T) {
	path, a := socket(t), newArena(t, mib)
	srv, _ := serve(t, path, Config{})
	frame := func(h head, body ...byte) []byte {
		h.body = len(body)
		return append(h.append(nil), body...)
	}
	patched := func(off int, v ...byte) []byte {
		b := head{op: opExists}.append(nil)
		copy(b[off:], v)
		return b
	}
	n := uint64(0)
	f := func(name string, greeted bool, in []byte) {
		t.Helper()
		r := rawDial(t, path)
		if greeted {
			r.hello()
		}
		r.Write(in)
		r.Conn.(*net.UnixConn).CloseWrite()
		out, _ := io.ReadAll(r) // ends because the server closes
		n++
		if got := srv.Stats().Malformed; got != n {
			t.Errorf("%s: %d malformed connections counted, want %d", name, got, n)
		}
		if len(out) < headBytes || status(out[5]) != statusMalformed {
			t.Errorf("%s: no refusal in %q", name, out)
		}
	}
	f("noise", false, bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 10))
	f("no hello", false, frame(head{op: opExists, count: 1}, 1, 0, 'k'))
	f("other version", false, frame(head{op: opHello}, append([]byte{1}, make([]byte, askBytes-1)...)...))
	f("short hello", false, frame(head{op: opHello}, 1))
	f("magic", true, patched(0, 'X'))
	f("unknown op", true, frame(head{op: 99}))
	f("huge body", true, patched(16, 0xff, 0xff, 0xff, 0xff))
	f("huge batch", true, patched(6, 0xff, 0xff))
	f("count without keys", true, frame(head{op: opExists, count: 2}, 1, 0, 'k'))
	f("keys without count", true, frame(head{op: opExists}, 1, 0, 'k'))
	f("empty key", true, frame(head{op: opRemove, count: 1}, 0, 0))
	f("long key", true, frame(head{op: opExists, count: 1}, append([]byte{0x01, 0x10}, make([]byte, 4097)...)...))
	f("get cut", true, frame(head{op: opGet, count: 1}, 1, 2, 3))
	f("return without a link", true, frame(head{op: opReturn, count: 1}, numbers(1)...))
	f("reserve cut", true, frame(head{op: opReserve}, 1, 2, 3))

	c := dial(t, ClientConfig{Path: path, Arena: a})
	mustPut(t, c, a, "k", 100, 1)
}

// A size from the wire is checked before any memory is taken.
func TestReserveOfAbsurdSize(t *testing.T) {
	path := socket(t)
	srv, _ := serve(t, path, Config{})
	r := rawDial(t, path).hello()
	for _, n := range []uint64{0, 1 << 40, 1 << 63, 1<<64 - 1} {
		r.send(head{op: opReserve, request: n}, reserveBody("k", n)...)
		if h, body := r.recv(); h.status != statusRejected || h.request != n || len(body) == 0 {
			t.Errorf("reserve of %d bytes: %+v %q", n, h, body)
		}
	}
	if st := srv.Stats(); st.Rejected != 4 || st.UploadBytes != 0 {
		t.Errorf("stats %+v", st)
	}
}

func TestListen(t *testing.T) {
	path := socket(t)
	refused := func(path, want string) {
		t.Helper()
		ln, err := Listen(path)
		if err == nil {
			ln.Close()
			t.Fatalf("Listen(%q) succeeded", path)
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	_, stop := serve(t, path, Config{})
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v, want mode 0600", st.Mode(), err)
	}
	refused(path, "is served by process")
	stop()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("socket file after Close: %v", err)
	}

	// A server that was killed leaves its file.
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close()
	serve(t, path, Config{})

	file := path + ".txt"
	os.WriteFile(file, []byte("precious"), 0o644)
	refused(file, "is no socket")
	refused("/tmp/"+strings.Repeat("x", 200), "limit 107")
	refused(path+"/no/such", "directory of the socket")
}

func TestOtherUsersAreRefused(t *testing.T) {
	path := socket(t)
	srv, err := NewServer(Config{MaxBytes: mib, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	srv.uid++ // the tests have one user only
	ln, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- srv.Serve(t.Context(), ln) }()
	r := rawDial(t, path)
	if b, _ := io.ReadAll(r); len(b) != 0 {
		t.Errorf("a stranger was told %q", b)
	}
	if got := srv.Stats().Refused; got != 1 {
		t.Errorf("%d connections refused, want 1", got)
	}
	srv.Close()
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []Config{{}, {MaxBytes: -1}, {MaxBytes: 10, MaxObjectBytes: 11}, {MaxBytes: 10, MaxConns: -1}, {MaxBytes: 10, IOTimeout: -1}} {
		if _, err := NewServer(cfg); err == nil {
			t.Errorf("NewServer(%+v) succeeded", cfg)
		}
	}
	for _, cfg := range []ClientConfig{{}, {Path: strings.Repeat("x", 108)}, {Path: "x", ReadConns: -1}, {Path: "x", IOTimeout: -1}, {Path: "x", MinBackoff: time.Hour}} {
		if _, err := Dial(t.Context(), cfg); err == nil {
			t.Errorf("Dial(%+v) succeeded", cfg)
		}
	}
}

func TestConnectionLimit(t *testing.T) {
	path := socket(t)
	srv, _ := serve(t, path, Config{MaxConns: 2})
	a, b := rawDial(t, path).hello(), rawDial(t, path).hello()
	if out, _ := io.ReadAll(rawDial(t, path)); len(out) != 0 {
		t.Errorf("third connection of two got %q", out)
	}
	if st := srv.Stats(); st.Refused != 1 || st.Connections != 2 {
		t.Errorf("%d connections and %d refused, want 2 and the third", st.Connections, st.Refused)
	}
	a.Close()
	eventually(t, "place of the closed connection", func() bool { return srv.Stats().Connections == 1 })
	rawDial(t, path).hello()
	b.Close()
}

func TestCollector(t *testing.T) {
	path, a := socket(t), newArena(t, mib)
	srv, _ := serve(t, path, Config{})
	c := dial(t, ClientConfig{Path: path, Arena: a})
	mustPut(t, c, a, "k", 1000, 1)
	get(t, c, "k")
	get(t, c, "absent")
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(srv.Collector())
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	for name, want := range map[string]float64{
		"objects": 1, "bytes": 1000, "limit_bytes": 64 << 20, "puts_total": 1, "gets_total": 2,
		"hits_total": 1, "misses_total": 1, "evictions_total": 0, "rejected_puts_total": 0,
	} {
		if v, ok := got["afterimage_store_"+name]; !ok || v != want {
			t.Errorf("afterimage_store_%s = %v (there: %v), want %v", name, v, ok, want)
		}
	}
}

// FuzzSession feeds a session bytes of any kind: it ends, and holds nothing afterwards.
func FuzzSession(f *testing.F) {
	hello := ask{}.append(head{op: opHello, body: askBytes}.append(nil))
	reserve := reserveBody("k", 4)
	f.Add(append(append(append([]byte(nil), head{op: opReserve, body: len(reserve)}.append(nil)...), reserve...), "data"...))
	f.Add(append(head{op: opExists, count: 1, body: 3}.append(nil), 1, 0, 'k'))
	f.Add([]byte("noise"))
	f.Fuzz(func(t *testing.T, in []byte) {
		l, err := NewLocal(Config{MaxBytes: 1 << 16, Logger: quiet}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		nc, _ := l.cfg.DialFunc(t.Context())
		go io.Copy(io.Discard, nc)
		nc.Write(hello)
		nc.Write(in)
		nc.Close()
		eventually(t, "end of the session", func() bool { return l.srv.Stats().Connections <= 1 })
		if st := l.srv.Stats(); st.UploadBytes != 0 || st.ReadingBytes != 0 {
			t.Errorf("left over: %+v", st)
		}
	})
}
