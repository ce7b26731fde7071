// SPDX-License-Identifier: Apache-2.0

// Package ports finds TCP ports of loopback for programs that cannot say which one they chose, and so have to be given
// one before they listen.
//
// A port that the kernel has chosen for a listener, and that is closed again for such a program, may be anybody's by the
// time that the program listens: the kernel gives it to the next listener or outgoing connection. Ports of this package
// lie below those that kernels choose from, and two that take one never get the same: who takes a port holds the UDP
// port of that number, which keeps nobody from listening at the TCP port.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken from [first, first+count): above those of common services, below the node ports of Kubernetes, which
// begin at 30000, and below those that Linux (32768) and other systems (49152) choose from.
const (
	first = 20000
	count = 10000
)

var (
	mu    sync.Mutex
	taken = map[int]net.PacketConn{}
)

// Take returns a port of 127.0.0.1 at which nobody listens. No other Take, of whatever process, returns it until it is
// released or this process has ended.
func Take() (int, error) {
	var last error
	for range 100 {
		port := first + rand.IntN(count)
		if last = take(port); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("ports: none of 100 between %d and %d is free: %w", first, first+count-1, last)
}

// Address is Take for callers that need the address with its port.
func Address() (string, error) {
	port, err := Take()
	return address(port), err
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// take takes one port.
func take(port int) error {
	claim, err := net.ListenPacket("udp", address(port))
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", address(port))
	if err == nil {
		err = ln.Close()
	}
	if err != nil {
		return errors.Join(err, claim.Close())
	}
	mu.Lock()
	defer mu.Unlock()
	taken[port] = claim
	return nil
}

// Release lets others take a port that Take has returned.
func Release(port int) {
	mu.Lock()
	defer mu.Unlock()
	if claim := taken[port]; claim != nil {
		_ = claim.Close() // nothing was sent
		delete(taken, port)
	}
}
