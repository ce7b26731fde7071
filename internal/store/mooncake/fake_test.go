// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// fake is a mooncake_client whose answers a test decides. It maps the memory that it is given and
// does nothing with it by itself.
type fake struct {
	t    testing.TB
	addr string

	mu       sync.Mutex // guards the fields below
	layout   *putLayout // nil refuses all
	serving  bool       // what pings answer
	mem      map[uuid][]byte
	base     map[uuid]uint64
	pinged   map[uuid]bool
	unmaps   int
	stubborn bool // does not let go of memory
	noInline bool // does not know fnGetInline
	// on answers gets and puts with one code for each key: 0 or more is success. It runs in a goroutine
	// of its own for each call.
	on func(fn uint32, keys []string, mem [][]byte) []int64
	// exist answers exists; nil says that nothing is there.
	exist func(keys []string) []int64
	// removed is how each removal ends; 0 is that there is nothing.
	removed code
	// size is that of every object; 0 is that there is none.
	size  byte
	calls map[uint32]int

	wg    sync.WaitGroup
	conns []net.Conn
	lns   []net.Listener
}

func startFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{t: t, layout: &putLayouts[0], serving: true, mem: map[uuid][]byte{}, base: map[uuid]uint64{}, pinged: map[uuid]bool{}, calls: map[uint32]int{}}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = tcp.Addr().String()
	_, port, _ := net.SplitHostPort(f.addr)
	uds, err := net.Listen("unix", socketName(port))
	if err != nil {
		t.Fatal(err)
	}
	f.lns = []net.Listener{tcp, uds}
	f.wg.Go(func() { f.accept(tcp, f.serve) })
	f.wg.Go(func() { f.accept(uds, f.takeMemory) })
	t.Cleanup(f.stop)
	return f
}

func (f *fake) stop() {
	for _, ln := range f.lns {
		_ = ln.Close()
	}
	f.drop()
	f.wg.Wait()
	for _, m := range f.mem {
		_ = unix.Munmap(m)
	}
}

// drop breaks all connections.
func (f *fake) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

func (f *fake) accept(ln net.Listener, serve func(net.Conn) error) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, c)
		f.mu.Unlock()
		f.wg.Go(func() {
			defer c.Close()
			if err := serve(c); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				f.t.Errorf("fake: %v", err)
			}
		})
	}
}

// takeMemory is the server's half of register.
func (f *fake) takeMemory(nc net.Conn) error {
	c := nc.(*net.UnixConn)
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		return err
	}
	rec, oob := make([]byte, registerBytes), make([]byte, 64)
	n, oobn, _, _, err := c.ReadMsgUnix(rec, oob)
	if err != nil || n != registerBytes {
		return errors.Join(err, io.ErrUnexpectedEOF)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return err
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return err
	}
	defer unix.Close(fds[0])
	le := binary.LittleEndian
	mem, err := unix.Mmap(fds[0], 0, int(le.Uint64(rec[24:])), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	id := uuid{le.Uint64(rec), le.Uint64(rec[8:])}
	f.mu.Lock()
	if !f.pinged[id] {
		f.t.Error("fake: memory of one who has not pinged, which a mooncake_client would never give back")
	}
	f.mem[id], f.base[id] = mem, le.Uint64(rec[16:])
	f.mu.Unlock()
	_, err = c.Write(make([]byte, 4))
	return err
}

// serve answers the calls of one connection, each in a goroutine.
func (f *fake) serve(c net.Conn) error {
	var wmu sync.Mutex
	for {
		var h [rpcRequestBytes]byte
		if _, err := io.ReadFull(c, h[:]); err != nil {
			return err
		}
		le := binary.LittleEndian
		body := make([]byte, le.Uint32(h[12:]))
		if _, err := io.ReadFull(c, body); err != nil {
			return err
		}
		f.wg.Go(func() {
			code, reply := f.answer(le.Uint32(h[8:]), body)
			wmu.Lock()
			defer wmu.Unlock()
			_, _ = c.Write(response(code, le.Uint32(h[4:]), reply)) // the client may have left
		})
	}
}

func (f *fake) answer(fn uint32, body []byte) (byte, []byte) {
	f.mu.Lock()
	f.calls[fn]++
	serving, exist, layout, noInline, removed, size := f.serving, f.exist, f.layout, f.noInline, f.removed, f.size
	f.mu.Unlock()
	switch fn {
	case fnReady:
		return 0, single(voidReply, 0, "")
	case fnPing:
		d := newDecoder(body, tUUID)
		f.mu.Lock()
		f.pinged[uuid{d.u64(), d.u64()}] = true
		f.mu.Unlock()
		status := byte(0)
		if serving {
			status = 1
		}
		return 0, single(pingType, 0, string(make([]byte, 8))+string([]byte{status, 0, 0, 0}))
	case fnExist:
		keys := newDecoder(body, vec(tStr)).strs()
		codes := make([]int64, len(keys))
		if exist != nil {
			codes = exist(keys)
		}
		return 0, list(existReply, codes, 1)
	case fnRemove:
		codes := make([]int64, len(newDecoder(body, removeType).strs()))
		for i := range codes {
			codes[i] = int64(cmp.Or(removed, codeNotFound))
		}
		return 0, list(putReply, codes, 0)
	case fnSize:
		if size == 0 {
			return 0, single(sizeReply, codeNotFound, "")
		}
		return 0, single(sizeReply, 0, string([]byte{size, 0, 0, 0, 0, 0, 0, 0}))
	case fnMapped:
		return 0, single(boolReply, 0, "\x01")
	case fnUnmap:
		return 0, f.unmap(body)
	case fnGet:
		return 0, list(getReply, f.transfer(fn, newDecoder(body, getType), nil), 8)
	case fnGetInline:
		if !noInline {
			return 0, list(getReply, f.transfer(fn, newDecoder(body, inlineType), nil), 8)
		}
	case fnPut:
		if layout == nil || binary.LittleEndian.Uint32(body)&^1 != layout.args.code {
			return rpcBadArguments, stringBody("layout")
		}
		return 0, list(putReply, f.transfer(fn, newDecoder(body, layout.args), layout), 0)
	}
	return rpcUnknownFunction, stringBody("unknown function")
}

func (f *fake) unmap(body []byte) []byte {
	d := newDecoder(body, tUUID)
	id := uuid{d.u64(), d.u64()}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unmaps++
	if f.stubborn {
		return single(voidReply, codeInternal, "")
	}
	if m := f.mem[id]; m != nil {
		_ = unix.Munmap(m)
		delete(f.mem, id)
	}
	return single(voidReply, 0, "")
}

// transfer decodes the arguments of a get or put and asks the test for the outcome.
func (f *fake) transfer(fn uint32, d *decoder, l *putLayout) []int64 {
	keys := d.strs()
	numbers := func() []uint64 {
		all := make([]uint64, d.length())
		for i := range all {
			if fn == fnGetInline && d.length() != 1 {
				f.t.Errorf("fake: object %d is in other than one piece", i)
			}
			all[i] = d.u64()
		}
		return all
	}
	addrs, sizes := numbers(), numbers()
	if fn == fnGetInline && d.u8() != 0 {
		f.t.Error("fake: asked for the way that looks at no lease")
	}
	if l != nil {
		var config encoder
		config.width = d.width
		l.write(&config, false)
		d.take(len(config.b))
	}
	d.u32() // device
	id := uuid{d.u64(), d.u64()}
	if len(keys) == 0 {
		return nil
	}
	f.mu.Lock()
	mem, base, on := f.mem[id], f.base[id], f.on
	f.mu.Unlock()
	if d.err != nil || len(addrs) != len(keys) || len(sizes) != len(keys) {
		f.t.Errorf("fake: malformed transfer: %v", d.err)
	}
	views := make([][]byte, len(keys))
	for i := range keys {
		if mem == nil {
			codes := make([]int64, len(keys))
			for j := range codes {
				codes[j] = int64(codeBadParams)
			}
			return codes
		}
		off := addrs[i] - base
		views[i] = mem[off : off+sizes[i] : off+sizes[i]]
	}
	return on(fn, keys, views)
}

// single writes one expected<T>: the value's bytes, or a code.
func single(t typ, c code, value string) []byte {
	e := newEncoder(t, 0, 16)
	if c != 0 {
		e.u8(0)
		e.i32(int32(c))
		return e.b
	}
	e.u8(1)
	e.b = append(e.b, value...)
	return e.b
}

// list writes a list of expected<T>, whose values take width bytes; negative ones are codes.
func list(t typ, values []int64, width int) []byte {
	e := newEncoder(t, len(values), 16)
	e.length(len(values))
	for _, v := range values {
		if v < 0 {
			e.u8(0)
			e.i32(int32(v))
			continue
		}
		e.u8(1)
		for i := range width {
			e.u8(byte(v >> (8 * i)))
		}
	}
	return e.b
}

func (f *fake) set(on func(fn uint32, keys []string, mem [][]byte) []int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on = on
}

func (f *fake) count(fn uint32) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[fn]
}
