// SPDX-License-Identifier: Apache-2.0

// Package consumer delivers embeddings into the memory of vLLM's prefill workers, in the place of an Encoder: the
// producer's side of vLLM's ECMooncakeConnector, over TCP, without any of its code.
//
// A consumer is one data-parallel replica of such a worker. It has a control channel (ZeroMQ's REQ and REP with JSON)
// for each of its tensor-parallel ranks, its shards, and each shard has memory of its own that Mooncake's Transfer
// Engine writes into. A delivery takes these steps at every shard, and is whole only when all have taken the last:
//
//	peers                          which shards there are, asked on every new connection
//	reserve {transfer, hash, …}    memory for it; or it is there already, or another writer is at it
//	handshake, WRITE, status       the bytes, acknowledged once they are in place
//	complete                       from here on the worker may use them
//
// # What is never done
//
// The worker checks none of what it is given: a wrong shape ends its engine, wrong bytes stay, and a write to memory
// that was given up overwrites whoever has it next. So nothing is written that does not have the size reserved, nothing
// outside of the buffers that the shard announced, nothing to a host that is not the consumer's own, and nothing
// without acknowledgement (tcp_proto_version 2). A write that broke is given up in this order: reset the connection, which
// drops what is still to be sent; hear from the shard that it runs; let it take in what its host has received
// (Config.Drain); abandon the transfer. A reserve without an answer is cancelled on a new
// connection, again and again until the consumer has heard it, since a process that was stopped may serve it later.
//
// # Ownership and concurrency
//
// Deliver borrows payloads until it returns. A Client may be used by any goroutine. Calls end at their deadlines, which
// Config sets, not when their ctx is cancelled: what is begun is finished or given up in order.
package consumer
