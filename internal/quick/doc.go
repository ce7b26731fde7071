// SPDX-License-Identifier: Apache-2.0

// Package quick is for calls between processes of a host, whose answers are microseconds away.
//
// A Conn moves short messages over a unix socket without a word to Go's scheduler, and a Poll has whoever waits for an
// answer look for it for a while before it sleeps: to wake a thread on a core that has gone to sleep takes longer than
// such an answer, 12 to 75 us on a virtual machine, on each side of a call.
//
// What polling costs is time of a core, for which others may wait meanwhile: a budget per wait, and where an answer is
// known to take longer, that. It does not yield the core: under load that gives a time slice away, milliseconds, to
// save microseconds. So it has to stop where it does not pay. A wait in vain is followed by waits that are not polled,
// 4, 16, then 64 of them, unless most of those before paid: on a connection whose peer has other things to do, or no
// core to do it on, a budget per 64 waits is spent.
//
// The package knows no messages. Deadlines and Close are those of the connection itself.
package quick
