// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"strconv"
	"time"
)

func (c *checker) store() {
	s := &c.l.Config.Store
	if c.is(RoleStore, RoleUp, RoleEncoder, RolePrefill) {
		c.oneOf("store.kind", s.Kind, StoreRAM, StoreMooncake, StoreNone)
	}
	c.retention(s)
	if !c.is(RoleStore, RoleUp) {
		return
	}
	switch {
	case c.role == RoleStore && s.Kind == StoreNone:
		c.fault("store.kind", "the Store is turned off; set it to %s to run one", StoreRAM)
	case c.role == RoleStore && s.Kind == StoreMooncake:
		c.fault("store.kind", "the Store is a Mooncake cluster, which mooncake_master and mooncake_client run; set it to %s to run a Store here", StoreRAM)
	}
	if c.role == RoleUp && s.Kind == StoreMooncake && s.Bytes < minMooncakeBytes {
		c.fault("store.bytes", "too small; give at least %v, with less mooncake_client does not start", minMooncakeBytes)
	}
	c.address("store.listen", s.Listen)
	c.memory("store.bytes", s.Bytes)
	// Linux takes 108 bytes for the path of a socket, one of them the end.
	if len(s.Path) > 107 {
		c.fault("store.path", "too long for a socket; give a path of at most 107 bytes")
	}
	if s.Path == "" {
		c.fault("store.path", "missing; give the path of a socket to make")
	}
}

// retention checks how long and for whom the Store keeps objects. Limits that nobody would keep are refused.
func (c *checker) retention(s *Store) {
	if c.is(RoleUp, RoleEncoder) && s.TTL != 0 {
		c.duration("store.ttl", s.TTL, time.Second)
		if s.Kind == StoreMooncake {
			c.fault("store.ttl", "a Mooncake cluster keeps objects until it needs the room; leave it at 0s, or set store.kind to %s", StoreRAM)
		}
	}
	if c.is(RoleUp) && s.TenantQuotaBytes != 0 && s.Kind == StoreMooncake {
		c.fault("store.tenant_quota_bytes", "tenants of a Mooncake cluster are set up at its master; leave it at 0, or set store.kind to %s", StoreRAM)
	}
	if c.is(RoleUp, RoleStore) && s.Kind == StoreRAM && s.TenantQuotaBytes > s.Bytes {
		c.fault("store.tenant_quota_bytes", "more than store.bytes (%v), which all tenants share; lower it, or leave it at 0 for no limit", s.Bytes)
	}
}

// minMooncakeBytes is the least that a mooncake_client starts with.
const minMooncakeBytes = 16 * MiB

// maxConnections is more than any mooncake_client has threads to serve.
const maxConnections = 64

// mooncake checks the way to a cluster where one is used.
func (c *checker) mooncake() {
	if m := &c.l.Config.Mooncake; c.is(RoleUp, RoleGateway) && m.Admin != "" {
		c.called("mooncake.admin", m.Admin, "of the master's HTTP server, e.g. 10.0.0.5:9003")
		c.duration("mooncake.list_every", m.ListEvery, 100*time.Millisecond)
	}
	if !c.is(RoleUp, RoleEncoder, RolePrefill) || c.l.Config.Store.Kind != StoreMooncake {
		return
	}
	c.cluster()
}

// cluster checks how a mooncake_client is called.
func (c *checker) cluster() {
	m := &c.l.Config.Mooncake
	c.called("mooncake.client", m.Client, "of this host's mooncake_client, e.g. 127.0.0.1:50052")
	c.atLeast("mooncake.read_connections", int64(m.ReadConnections), 1, "")
	c.atMost("mooncake.read_connections", int64(m.ReadConnections), maxConnections, "each takes a thread of mooncake_client")
	c.atLeast("mooncake.write_connections", int64(m.WriteConnections), 1, "")
	c.atMost("mooncake.write_connections", int64(m.WriteConnections), maxConnections, "each takes a thread of mooncake_client")
	c.duration("mooncake.call_timeout", m.CallTimeout, time.Second)
	c.duration("mooncake.register_timeout", m.RegisterTimeout, time.Second)
	c.duration("mooncake.client_ttl", m.ClientTTL, time.Second)
	c.duration("mooncake.give_up_timeout", m.GiveUpTimeout, time.Second)
}

// called checks host:port of another process, whose says which.
func (c *checker) called(key, value, whose string) {
	host, port, err := net.SplitHostPort(value)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
		c.fault(key, "no address to call; write HOST:PORT %s", whose)
	}
}
