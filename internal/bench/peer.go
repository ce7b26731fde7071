// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

//go:embed peer.py
var peerScript []byte

// The peers that clients of Mooncake are compared with, by the names of --peer.
const (
	peerVLLM   = "vllm"   // vLLM's Store client and resolver
	peerPython = "python" // Mooncake's Python client
	peerDummy  = "dummy"  // the same, through the host's mooncake_client
)

// peer is a program of somebody else's in a process of its own. One goroutine uses it.
type peer struct {
	*child
	conn net.Conn
	in   *bufio.Reader
}

// peerAsk is one request to a peer.
type peerAsk struct {
	Op   string   `json:"op"` // hit, get, miss, put, drop, sums, push
	IDs  []string `json:"ids,omitempty"`
	Rows int      `json:"rows,omitempty"`
	Cols int      `json:"cols,omitempty"`
}

// peerAnswer is its answer.
type peerAnswer struct {
	US    float64  `json:"us"`   // what the call took, as the peer timed it
	Sums  []string `json:"sums"` // SHA-256 of the values that were read last
	Error string   `json:"error"`
}

// peerAnswerTimeout bounds one answer; four objects of 30 MiB took 0.2 s.
const peerAnswerTimeout = 30 * time.Second

// startPeer runs the script as kind with the Python of the folder that make peers filled, and waits until it is
// connected.
func startPeer(ctx context.Context, kind string, at mooncakeAddresses, python string, env []string, room int) (*peer, error) {
	script, socket := filepath.Join(at.dir, "peer.py"), filepath.Join(at.dir, kind+".sock")
	if err := os.WriteFile(script, peerScript, 0o600); err != nil {
		return nil, err
	}
	args := []string{"-W", "ignore", script, kind, socket, at.master, at.host, benchNamespace.String(), strconv.Itoa(room)}
	return connectPeer(ctx, kind, socket, python, args, env)
}

// connectPeer runs a program that connects to a socket, and waits until it has.
func connectPeer(ctx context.Context, name, socket, python string, args, env []string) (*peer, error) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	p := &peer{}
	if p.child, err = startChild(name, python, args, env, func(string) bool { return false }); err != nil {
		return nil, err
	}
	if p.conn, err = p.accept(ctx, ln); err != nil {
		p.child.stop()
		return nil, err
	}
	p.in = bufio.NewReader(p.conn)
	return p, nil
}

// accept waits for the peer's connection, its end, or that of ctx.
func (p *peer) accept(ctx context.Context, ln *net.UnixListener) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("bench: %s was not ready within %v", p.name, startTimeout))
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-p.exited:
		}
		_ = ln.SetDeadline(time.Unix(1, 0)) // wakes Accept
	}()
	conn, err := ln.Accept()
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w; its last lines:\n%s", context.Cause(ctx), p.lastLines())
	}
	return nil, fmt.Errorf("bench: %s ended before it was ready (%v); its last lines:\n%s", p.name, p.status, p.lastLines())
}

// ask makes one request.
func (p *peer) ask(a peerAsk) (peerAnswer, error) {
	var out peerAnswer
	line, err := json.Marshal(a)
	if err == nil {
		err = p.conn.SetDeadline(time.Now().Add(peerAnswerTimeout))
	}
	if err == nil {
		_, err = p.conn.Write(append(line, '\n'))
	}
	if err == nil {
		line, err = p.in.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(line, &out)
	}
	if err == nil && out.Error != "" {
		err = errors.New(out.Error)
	}
	if err != nil {
		return out, fmt.Errorf("bench: %s: %s: %w; its last lines:\n%s", p.name, a.Op, err, p.lastLines())
	}
	return out, nil
}

// stop ends the peer, which exits when its connection does.
func (p *peer) stop() {
	_ = p.conn.Close()
	p.child.stop()
}
