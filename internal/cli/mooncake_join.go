// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/supervise"
)

// How long an Encoder waits for its Store: at its start, after which it serves without and goes on
// trying, and at its end, which has to fit into the 5 s of up.
const (
	mooncakeOpenTimeout  = 5 * time.Second
	mooncakeCloseTimeout = 2 * time.Second
)

// errNoMaster says that the file of MOONCAKE_CONFIG_PATH leaves out what nobody can guess.
var errNoMaster = errors.New(config.MooncakeEnv + ": the file names no master_server_address")

// answerTimeout bounds the look whether a mooncake_client of this host takes connections.
const answerTimeout = time.Second

// openMooncake returns a client of the mooncake_client of this host, which transfers from and to memory.
// It has one started where that is asked for and none is there.
func openMooncake(ctx context.Context, cfg config.Config, p *process, memory *arena.Arena, parts *closers) (*mooncake.Client, error) {
	address, command := cfg.Mooncake.Client, ""
	if !supervise.Supervised() { // else up runs one
		var err error
		if address, command, err = attachMooncake(ctx, cfg.Mooncake, p, parts); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, mooncakeOpenTimeout)
	defer cancel()
	settings := clientConfig(cfg.Mooncake, address, p)
	settings.StartCommand = command
	c, err := mooncake.Open(ctx, settings, memory)
	if err != nil {
		return nil, fmt.Errorf("mooncake.client = %q: %w; 'afterimage doctor --store mooncake' looks closer", address, err)
	}
	p.registry.MustRegister(c.Collector())
	return c, nil
}

func clientConfig(m config.Mooncake, address string, p *process) mooncake.Config {
	return mooncake.Config{
		Addr: address, ReadConns: m.ReadConnections, WriteConns: m.WriteConnections,
		CallTimeout: time.Duration(m.CallTimeout), RegisterTimeout: time.Duration(m.RegisterTimeout),
		ClientTTL: time.Duration(m.ClientTTL), GiveUpTimeout: time.Duration(m.GiveUpTimeout),
		CloseTimeout: mooncakeCloseTimeout, Logger: p.log,
	}
}

// attachMooncake returns the address of this host's mooncake_client, and the command that starts one there.
// Where none answers it has one kept running until parts close, if the configuration says so and the cluster
// is known.
func attachMooncake(ctx context.Context, m config.Mooncake, p *process, parts *closers) (address, command string, err error) {
	file, err := config.LoadMooncakeFile(p.env, func(line string) { p.log.Warn(line) })
	if err != nil && !errors.Is(err, config.ErrNoMooncakeFile) {
		return "", "", err
	}
	address, server := mooncakeServer(m.Client, file)
	command = server.Command()
	answered := takesCalls(address)
	if !answered && address != m.Client && takesCalls(m.Client) {
		address, answered = m.Client, true
	}
	switch {
	case !answered && !m.StartClient:
		return "", "", fmt.Errorf("mooncake.client = %q: nobody listens there, and mooncake.start_client is false; start it:\n%s", address, command)
	case answered && !keptHere(address), !m.StartClient:
		return address, command, nil // it is somebody else's to start, and to start again
	case file.MasterServerAddress == "":
		if err == nil {
			p.log.Warn("mooncake: cannot start a mooncake_client", "cause", errNoMaster)
		}
		return address, command, nil
	}
	dir, err := findMooncake(m.Dir, caches())
	if err != nil {
		p.log.Warn("mooncake: cannot start a mooncake_client", "cause", err)
		return address, command, nil
	}
	k := keepMooncake(dir, address, server, p)
	parts.add(k.close)
	k.wait(ctx)
	return address, command, nil
}

// mooncakeServer returns how the mooncake_client of this host is started for the cluster of file, and where
// it takes calls then: at client, or at the address under which the cluster reaches this host where client
// is a loopback address and the master is elsewhere.
func mooncakeServer(client string, file config.MooncakeFile) (address string, s mooncake.Server) {
	s = mooncake.Server{
		Port: port(client), Master: file.MasterServerAddress, Metadata: file.MetadataServer, Protocol: file.Protocol,
		Device: file.DeviceName, Tenant: file.TenantID, SegmentBytes: file.GlobalSegmentSize,
	}
	if s.Master == "" { // then what is returned is for people
		s.SegmentBytes = 4 << 30
		return client, s
	}
	if s.Host = host(client); loopback(s.Host) {
		s.Host = cmp.Or(localAddress(s.Master), s.Host)
	}
	return net.JoinHostPort(s.Host, s.Port), s
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// localAddress returns the address of this host towards remote, host:port; "" if there is no way there. No
// packet is sent.
func localAddress(remote string) string {
	c, err := net.DialTimeout("udp", remote, answerTimeout)
	if err != nil {
		return ""
	}
	defer c.Close()
	return host(c.LocalAddr().String())
}

// takesCalls says whether something takes connections at address.
func takesCalls(address string) bool {
	c, err := net.DialTimeout("tcp", address, answerTimeout)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
