// SPDX-License-Identifier: Apache-2.0

// Package mooncake is the Store that spans hosts: a Mooncake cluster, reached through the official
// mooncake_client of this host, to which the package speaks the protocol of Mooncake's own "dummy
// clients".
//
// # Data path
//
// The arena is handed to mooncake_client once, as a descriptor over an abstract unix socket; calls go
// over TCP and name addresses in it. A GET makes mooncake_client write objects straight into the
// arena, from its own segment or from another host; a PUT makes it read them there. No byte of an
// object passes through a socket of this process.
//
// One connection carries heartbeats, some carry exists and gets, others puts and removes: the server
// runs a PUT to its end before it looks at the next call of that connection. It does so with GETs of one of its
// functions, too, which is the fastest way to read little; those go where PUTs do, while none is there (inline).
//
// # Memory in doubt
//
// mooncake_client cannot cancel a transfer. When one ends without a clear word (a failed transfer, a
// call that its caller left, a connection that broke), its range goes into quarantine, which holds a
// reference. It comes back when the late answer arrives; when mooncake_client confirms that it
// withdrew the mapping, for which the arena first gets a further identity, so that calls go on; or
// when the process is known to be dead. Beyond a quarter of the arena no transfer starts, and when
// it stays so for Config.GiveUpTimeout, the client closes for good (Dead).
//
// The key of such a transfer is not trusted for Config.ClientTTL: until the master notices that a
// storage node is dead, it says that objects there exist, and PUTs of them succeed without storing. Of a
// call that its caller left, the late answer decides.
//
// # Away
//
// A connection that breaks is made anew in the background, with a new identity of the arena. While
// the master is away each call would take seconds, so a breaker refuses them until a trial call went
// well. All of that is ErrUnavailable to the caller.
//
// # Concurrency
//
// One goroutine, the heart, pings and connects; it starts upkeep and trials beside itself, so that a
// slow one never delays a ping. Calls take the connections and the session that are current when they
// begin and keep them to their end: whoever replaces either never waits for calls, and calls that were
// sent under a former session are refused by the server once its mapping is gone. Of those who wait for
// answers on one connection, one reads for all, and blocks a thread meanwhile: there are no more of these than
// connections.
//
// Locks, in the order in which they are taken: Client.turn (sessions change), Client.mu, breaker.mu or
// quarantine.mu, outage.mu or the arena's. Only turn is held during I/O, and
// conn.reading and conn.wmu, during which nothing else is taken but conn.mu.
//
// # Limits
//
// Leases protect what is being read, so Remove never forces: see Remove. Sizes are not known to
// Exists. A mooncake_client tells of no changes: Watch compares the lists that the master gives. Of
// PutOptions SoftPin alone is honoured. Objects carry no checksum of Mooncake's; whoever reads one
// checks it against its key and contract.
package mooncake
