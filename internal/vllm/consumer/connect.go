// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// maxShards bounds the tensor-parallel ranks of a consumer.
const maxShards = 64

// control returns a connection to the control channel at address, which the caller gives to keep. A new one is asked
// for the shards, since it may be to another process than the last.
func (p *peer) control(ctx context.Context, address string) (*requester, error) {
	p.mu.Lock()
	q, rest, ok := takeIdle(p.idle[address])
	p.idle[address] = rest
	p.mu.Unlock()
	if ok {
		return q, nil
	}
	return p.freshControl(ctx, address)
}

// freshControl is control with a new connection.
func (p *peer) freshControl(ctx context.Context, address string) (*requester, error) {
	ctx, cancel := bound(ctx, p.c.cfg.CallTimeout)
	defer cancel()
	nc, err := p.c.cfg.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	q, err := newRequester(ctx, nc)
	if err != nil {
		return nil, err
	}
	if address != p.address {
		return q, nil
	}
	if _, err := p.ask(ctx, q); err != nil {
		q.close()
		return nil, err
	}
	return q, nil
}

// ask asks for the shards.
func (p *peer) ask(ctx context.Context, q *requester) ([]int, error) {
	var found struct{ Ports []int }
	if err := p.call(ctx, q, peersRequest, &found); err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	if n := len(found.Ports); n == 0 || n > maxShards {
		return nil, fmt.Errorf("peers: %d shards, want 1 to %d", n, maxShards)
	}
	for _, port := range found.Ports {
		if port < 1 || port > 65535 {
			return nil, fmt.Errorf("peers: port %d", port)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports = found.Ports
	return found.Ports, nil
}

// addresses returns where the shards with ports take calls: on the host of the consumer, all of them.
func (p *peer) addresses(ports []int) []string {
	host, own, _ := net.SplitHostPort(p.address)
	out := make([]string, len(ports))
	for i, port := range ports {
		if out[i] = net.JoinHostPort(host, strconv.Itoa(port)); strconv.Itoa(port) == own {
			out[i] = p.address
		}
	}
	return out
}

// call makes one call on q, which is of no use any more if the error is not a *RefusedError.
func (p *peer) call(ctx context.Context, q *requester, request []byte, out any) error {
	ctx, cancel := bound(ctx, p.c.cfg.CallTimeout)
	defer cancel()
	reply, err := q.request(ctx, request)
	if err != nil {
		return err
	}
	var e envelope
	if err := json.Unmarshal(reply, &e); err != nil {
		return fmt.Errorf("the answer %.80q: %w", reply, err)
	}
	return e.open(out)
}

// isRefusal says that err is an answer, after which the connection is as good as before.
func isRefusal(err error) bool { return errors.As(err, new(*RefusedError)) }

// engine returns a data connection to the Transfer Engine of a session that q's shard named, which the caller gives to
// keepEngine. Errors wrap ErrUnfit where no other attempt can succeed.
func (p *peer) engine(ctx context.Context, q *requester, name string) (*engine, error) {
	p.mu.Lock()
	e, rest, ok := takeIdle(p.engines[name])
	p.putEngines(name, rest)
	p.mu.Unlock()
	if ok {
		return e, nil
	}
	ctx, cancel := bound(ctx, p.c.cfg.CallTimeout)
	defer cancel()
	// A session without a connection may be another process by now: it is asked again.
	seg, address, err := p.meet(ctx, q, name)
	if err != nil {
		return nil, fmt.Errorf("engine at %s: %w", name, err)
	}
	nc, err := p.c.cfg.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &engine{nc: nc, at: seg}, nil
}

// meet does the handshake with the engine of a session.
func (p *peer) meet(ctx context.Context, q *requester, name string) (*segment, string, error) {
	if err := p.own(q, name); err != nil {
		return nil, "", err
	}
	nc, err := p.c.cfg.Dial(ctx, name)
	if err != nil {
		return nil, "", err
	}
	seg, err := handshake(ctx, nc)
	if err != nil {
		return nil, "", err
	}
	address, err := seg.dataAddress(name)
	if err == nil {
		err = p.own(q, address)
	}
	return seg, address, err
}

// own says whether address, which a consumer named, is on the consumer's own host: else anybody who can pose as one
// could have this process connect, and write, to any place.
func (p *peer) own(q *requester, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address %.80q: %w", address, err)
	}
	if registered, _, _ := net.SplitHostPort(p.address); host == registered {
		return nil
	}
	if named, err := netip.ParseAddr(host); err == nil {
		if at, ok := q.nc.RemoteAddr().(*net.TCPAddr); ok && at.AddrPort().Addr().Unmap() == named.Unmap() {
			return nil
		}
	}
	return fmt.Errorf("%w: it names %s, which is on another host than its control channel at %s", ErrUnfit, address, p.address)
}

// keepEngine keeps e for the next write to its session, unless it had an error.
func (p *peer) keepEngine(name string, e *engine, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || p.dropped || len(p.engines[name]) == maxIdle {
		e.close()
		return
	}
	p.engines[name] = append(p.engines[name], e)
}

// putEngines sets the connections of a session; p is locked. Consumers name sessions, so that none is kept without.
func (p *peer) putEngines(name string, list []*engine) {
	if len(list) == 0 {
		delete(p.engines, name)
		return
	}
	p.engines[name] = list
}
