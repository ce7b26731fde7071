// SPDX-License-Identifier: Apache-2.0

// Package transport delivers embeddings from an Encoder to a Prefill worker (P/D).
//
// # Data path
//
// The receiver decides about memory. Receiver.Grant reserves room for all objects of a request or for
// none, in arrival order; a grant travels to the Encoder with the control calls, and Sender.Send delivers
// its object. Between hosts that is written, as it lies in the sender's arena, straight into the granted
// range of the receiver's; on one host the receiver has mapped the sender's arena, read-only, and reads the
// object where it is. The receiver checks the object against its key and contract and confirms. Ticket.Wait
// then hands the object out.
//
// Bytes go over one connection per peer pair, TCP between hosts and a unix socket on one, in fixed
// 64-byte frames (frame.go, docs/wire.md). Every frame carries transfer, attempt and generation; a late
// or wrong one is drained, counted and answered, and the connection goes on. Bytes that are no frame at
// all close their connection and touch nothing else.
//
// # States
//
// What may happen to a room (memory for one object at a receiver), to a ticket (interest in one
// transfer) and to a delivery (one Send) are three tables and three pure functions: state.go and
// delivery.go. Everything else feeds them events, and does what they say.
//
// # Ownership
//
// A room owns its range until its last ticket is claimed, or until the transfer fails; while a writer
// fills it, the goroutine that reads from the connection holds it, and lets go within WriterTimeout
// whatever the peer does. A sender holds a reference of what it copies until that has left, and of what
// it lends until the receiver says that it let go, or has closed its end of the connection. It is the
// end of the receiver's side that ends loans, never that of the sender's: see docs/wire.md.
//
// # Concurrency
//
// One mutex guards a receiver's rooms and tickets, one each link's queue and loans; neither is held
// during I/O. One goroutine per connection reads. Answers and small frames are written by whoever finds
// nobody writing, or by a goroutine of the connection. A Send that ends early disturbs no other.
//
// # What it does not do
//
// A transfer that failed is not retried here: it is repaired by a fresh grant (409 "missing"). A Send
// that lost its connection asks once what became of its object, and no more. Connections between hosts
// are as safe as the TLS configuration that they are given. Nothing here knows of requests.
package transport
