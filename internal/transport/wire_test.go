// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"afterimage/internal/fdpass"
)

// A host of these tests is a process in a user and a network namespace of its own, made without any
// right. Its one network interface is a tunnel whose other end is here: the wire between two hosts is a
// loop that passes IP packets on, late, or not at all.

// hostEnv tells a process of this test program that it is a host, and which.
const hostEnv = "AFTERIMAGE_TRANSPORT_TEST_HOST"

// hostAddress is that of host n.
func hostAddress(n int) string { return fmt.Sprintf("10.77.0.%d", n) }

// host is a process at one end of a wire.
type host struct {
	t    *testing.T
	n    int
	cmd  *exec.Cmd
	nc   net.Conn
	enc  *json.Encoder
	dec  *json.Decoder
	tun  *os.File
	over sync.Once
}

// startHost starts host n. Where namespaces or tunnels are not to be had, the test fails and says so.
func startHost(t *testing.T, n int) *host {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	near, far := os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far")
	defer near.Close()
	defer far.Close()
	h := &host{t: t, n: n, cmd: exec.Command("/proc/self/exe")}
	h.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", hostEnv, n))
	h.cmd.Stdout, h.cmd.Stderr = os.Stderr, os.Stderr
	h.cmd.ExtraFiles = []*os.File{far}
	h.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatalf("no user and network namespaces on this machine (does 'unshare -rn true' work?): %v", err)
	}
	t.Cleanup(h.kill)
	if h.nc, err = net.FileConn(near); err != nil {
		t.Fatal(err)
	}
	src := &fdpass.Source{Conn: h.nc}
	var hello [1]byte
	if _, err := io.ReadFull(src, hello[:]); err != nil || hello[0] != 0 {
		text, _ := io.ReadAll(h.nc)
		t.Fatalf("host %d has no tunnel (is /dev/net/tun there?): %s%v", n, text, err)
	}
	h.tun = src.Take(1)[0]
	h.enc, h.dec = json.NewEncoder(h.nc), json.NewDecoder(h.nc)
	return h
}

// kill ends the process as a power cut would: its kernel says goodbye to nobody, if the wire is cut.
func (h *host) kill() {
	h.over.Do(func() {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
		h.nc.Close()
		if h.tun != nil {
			h.tun.Close()
		}
	})
}

// call has the host do something.
func (h *host) call(req hostRequest) (resp hostResponse) {
	h.t.Helper()
	if err := h.enc.Encode(req); err != nil {
		h.t.Fatalf("host %d: %v", h.n, err)
	}
	_ = h.nc.SetReadDeadline(time.Now().Add(time.Minute))
	if err := h.dec.Decode(&resp); err != nil {
		h.t.Fatalf("host %d, %s: %v", h.n, req.Op, err)
	}
	return resp
}

// wire joins two hosts.
type wire struct {
	mu    sync.Mutex // guards the fields below
	delay time.Duration
	loss  float64
	cut   [2]bool // by the host that packets come from
	after int     // when positive: cut both ways after so many more packets
	rng   *rand.Rand
	wg    sync.WaitGroup
}

// connect joins two hosts until the end of the test.
func connect(t *testing.T, a, b *host) *wire {
	w := &wire{rng: rand.New(rand.NewPCG(1, 2))}
	w.wg.Go(func() { w.pass(0, a.tun, b.tun) })
	w.wg.Go(func() { w.pass(1, b.tun, a.tun) })
	t.Cleanup(func() {
		a.kill()
		b.kill()
		w.wg.Wait()
	})
	return w
}

// set changes the wire.
func (w *wire) set(change func(*wire)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// drops decides about a packet.
func (w *wire) drops(from int) (drop bool, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.after > 0 {
		if w.after--; w.after == 0 {
			w.cut = [2]bool{true, true}
		}
	}
	return w.cut[from] || w.rng.Float64() < w.loss, w.delay
}

// pass carries packets one way, in order, until an end is closed.
func (w *wire) pass(from int, in, out *os.File) {
	type packet struct {
		b   []byte
		due time.Time
	}
	late := make(chan packet, 1<<14)
	w.wg.Go(func() {
		for p := range late {
			if d := time.Until(p.due); d > 0 {
				time.Sleep(d) // the packet is under way: that is what is tested
			}
			_, _ = out.Write(p.b) // to a host that is gone: lost, like any packet
		}
	})
	defer close(late)
	b := make([]byte, 1<<16)
	for {
		n, err := in.Read(b)
		if err != nil {
			return
		}
		if drop, delay := w.drops(from); !drop {
			late <- packet{append([]byte(nil), b[:n]...), time.Now().Add(delay)}
		}
	}
}

// openTunnel makes the interface of a host, with its address.
func openTunnel(address string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq("wire")
	if err != nil {
		return nil, err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return nil, fmt.Errorf("make a tunnel: %w", err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(s)
	ip := net.ParseIP(address).To4()
	for _, step := range []struct {
		op  uint
		set func() error
	}{
		{unix.SIOCSIFADDR, func() error { return req.SetInet4Addr(ip) }},
		{unix.SIOCSIFNETMASK, func() error { return req.SetInet4Addr([]byte{255, 255, 255, 0}) }},
		{unix.SIOCSIFFLAGS, func() error { req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }},
	} {
		if err := errors.Join(step.set(), unix.IoctlIfreq(s, step.op, req)); err != nil {
			return nil, fmt.Errorf("set the tunnel up (%#x): %w", step.op, err)
		}
	}
	return os.NewFile(uintptr(fd), "tunnel"), nil
}
