// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socketName is the abstract socket on which the mooncake_client of a port takes memory. The name
// itself begins with '@'; Go turns the first one into the NUL of abstract names.
func socketName(port string) string { return "@@mooncake_client_" + port + ".sock" }

// The record that hands a mapping over, little endian:
//
//	 0  u64  id, first half
//	 8  u64  id, second half
//	16  u64  address that calls use for the first byte
//	24  u64  bytes
//	32  i32  device, -1 for any
//	36  u8   1 for the server's own buffers
//	37       padding
//
// A u32 0 goes before it, the answer is an i32 0 or -1.
const registerBytes = 40

// register gives the memory behind file to the mooncake_client at socket, under id, and returns the
// process that took it. One id is registered once: a second time changes nothing, not even the
// size. The server answers after all transfers that run, of all its clients; ctx bounds the wait.
func register(ctx context.Context, socket string, file *os.File, base uint64, bytes int64, id uuid) (*process, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	c := nc.(*net.UnixConn)
	defer c.Close()
	// The deadline wakes the read when ctx ends in any way.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	p, err := peerProcess(c)
	if err != nil {
		return nil, err
	}
	if err := handOver(c, file, base, bytes, id); err != nil {
		p.close()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (it answers after all running transfers)", context.Cause(ctx))
		}
		return nil, err
	}
	return p, nil
}

func handOver(c *net.UnixConn, file *os.File, base uint64, bytes int64, id uuid) error {
	if _, err := c.Write(make([]byte, 4)); err != nil {
		return err
	}
	le := binary.LittleEndian
	rec := make([]byte, registerBytes)
	le.PutUint64(rec[0:], id[0])
	le.PutUint64(rec[8:], id[1])
	le.PutUint64(rec[16:], base)
	le.PutUint64(rec[24:], uint64(bytes))
	le.PutUint32(rec[32:], 1<<32-1) // anyDevice
	// The server takes the record and the descriptor from one message only.
	n, _, err := c.WriteMsgUnix(rec, syscall.UnixRights(int(file.Fd())), nil)
	if err != nil {
		return err
	}
	if n != len(rec) {
		return fmt.Errorf("sent %d of %d bytes of the record", n, len(rec))
	}
	var st [4]byte
	if _, err := io.ReadFull(c, st[:]); err != nil {
		return err
	}
	if s := int32(le.Uint32(st[:])); s != 0 {
		return fmt.Errorf("mooncake_client refused to map %d bytes (%d): see its log", bytes, s)
	}
	return nil
}

// process is a mooncake_client that has our memory mapped. It is watched through a pidfd, which no
// later process of the same number can be taken for.
type process struct {
	pid   int // 0 when it is in a pid namespace that we do not see
	pidfd int // -1 when there is none
}

// soPeerPidfd is SO_PEERPIDFD, of kernel 6.5 and newer.
const soPeerPidfd = 77

// peerProcess returns the process that listens at the other end of c.
func peerProcess(c *net.UnixConn) (*process, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &process{pidfd: -1}
	err = errors.Join(raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			p.pid = int(cred.Pid)
		}
		if pidfd, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, soPeerPidfd); err == nil {
			p.pidfd = pidfd
		} else if p.pid > 0 {
			if pidfd, err := unix.PidfdOpen(p.pid, 0); err == nil {
				p.pidfd = pidfd
			}
		}
	}))
	if p.pidfd >= 0 {
		unix.CloseOnExec(p.pidfd)
	}
	return p, err
}

// dead says whether the process is known to have ended, with all its threads.
func (p *process) dead() bool {
	if p.pidfd < 0 {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0
}

func (p *process) close() {
	if p.pidfd >= 0 {
		_ = unix.Close(p.pidfd)
		p.pidfd = -1
	}
}
