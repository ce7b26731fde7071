// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// redis is a connection to a redis-server of this benchmark's own. It speaks the few words of RESP that
// are measured, into memory that is there already, so that the peer pays for no client library.
type redis struct {
	server *child
	conn   net.Conn
	in     *bufio.Reader
}

// startRedis runs a server without persistence on a unix socket in dir. Where there is no program, why says
// so and there is no error.
func startRedis(ctx context.Context, dir string, env []string) (r *redis, why string, err error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, "no redis-server on PATH", nil
	}
	socket := filepath.Join(dir, "redis.sock")
	args := []string{"--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", dir}
	r = &redis{}
	if r.server, err = startChild("redis-server", binary, args, env, func(string) bool { return true }); err != nil {
		return nil, "", err
	}
	err = poll(ctx, "redis-server listens", func() (bool, error) {
		conn, err := net.Dial("unix", socket)
		r.conn = conn
		return err == nil, nil
	})
	if err != nil {
		r.server.stop()
		return nil, "", err
	}
	r.in = bufio.NewReaderSize(r.conn, 64<<10)
	return r, "", nil
}

func (r *redis) stop() {
	r.conn.Close()
	r.server.stop()
}

// send writes a command as an array of bulk strings; the last argument in a write of its own.
func (r *redis) send(args ...[]byte) error {
	var head strings.Builder
	fmt.Fprintf(&head, "*%d\r\n", len(args))
	for _, a := range args[:len(args)-1] {
		fmt.Fprintf(&head, "$%d\r\n%s\r\n", len(a), a)
	}
	last := args[len(args)-1]
	fmt.Fprintf(&head, "$%d\r\n", len(last))
	bufs := net.Buffers{[]byte(head.String()), last, []byte("\r\n")}
	_, err := bufs.WriteTo(r.conn)
	return err
}

// line reads a reply's first line and returns what stands behind its type.
func (r *redis) line(want byte) (string, error) {
	s, err := r.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	s = strings.TrimSuffix(s, "\r\n")
	if s == "" || s[0] != want {
		return "", fmt.Errorf("redis: reply %q, want type %q", s, want)
	}
	return s[1:], nil
}

func (r *redis) set(key string, value []byte) error {
	if err := r.send([]byte("SET"), []byte(key), value); err != nil {
		return err
	}
	_, err := r.line('+')
	return err
}

// del removes a key that is there.
func (r *redis) del(key string) error {
	if err := r.send([]byte("DEL"), []byte(key)); err != nil {
		return err
	}
	n, err := r.line(':')
	if err == nil && n != "1" {
		err = fmt.Errorf("redis: %s keys removed, want 1", n)
	}
	return err
}

// exists asks for all keys at once and returns how many there are.
func (r *redis) exists(keys ...string) (int, error) {
	args := [][]byte{[]byte("EXISTS")}
	for _, k := range keys {
		args = append(args, []byte(k))
	}
	if err := r.send(args...); err != nil {
		return 0, err
	}
	s, err := r.line(':')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(s)
}

// get reads the value of each key into dst, which has the right size. The requests are pipelined.
func (r *redis) get(keys []string, dst [][]byte) error {
	for _, k := range keys {
		if err := r.send([]byte("GET"), []byte(k)); err != nil {
			return err
		}
	}
	for _, d := range dst {
		s, err := r.line('$')
		if err != nil {
			return err
		}
		if n, err := strconv.Atoi(s); err != nil || n != len(d) {
			return fmt.Errorf("redis: value of %s bytes, want %d", s, len(d))
		}
		if _, err := io.ReadFull(r.in, d); err != nil {
			return err
		}
		if _, err := r.in.Discard(2); err != nil {
			return err
		}
	}
	return nil
}

// resolve does what a resolver does: one question, then the values.
func (r *redis) resolve(keys []string, dst [][]byte) error {
	n, err := r.exists(keys...)
	if err == nil && n != len(keys) {
		err = errors.New("redis: a key is gone")
	}
	if err != nil {
		return err
	}
	return r.get(keys, dst)
}
