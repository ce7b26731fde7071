// SPDX-License-Identifier: Apache-2.0

// Package ram is the embedded Store: one process keeps objects in its own arena and serves them to
// the workers of one host over a unix socket.
//
// # Data path
//
// A PUT reserves room, streams the bytes into the Server's arena and commits; a GET streams them
// from there into the arena of the client. Objects are bounded by Config.MaxBytes and leave in the
// order in which they were last read. What is being read is never evicted, and a PUT that cannot fit
// is refused before a byte of it is sent. Whoever gets an object checks it against its key and
// contract: the Store does not look inside.
//
// # Connections
//
// A connection carries one call at a time, so a reply can only meet the call that asked for it. A
// call that is cancelled or late closes its connection, which is never used again. Reads and writes
// have connections of their own: a slow PUT never holds up a GET. Room that a connection reserved
// goes back when the connection ends, so a writer that dies half way leaves nothing behind and never
// blocks its key: whoever commits first stores, and all others are told that the object is there.
//
// # Wire format
//
// All numbers are little endian. The client speaks first and waits for the reply. Every frame
// starts with a head of 24 bytes:
//
//	off size field
//	  0    4 magic "AFS1"
//	  4    1 op
//	  5    1 status (0 in requests)
//	  6    2 count of items in a batch (0 where there is no batch)
//	  8    8 request id: chosen by the client, repeated in every reply
//	 16    4 body bytes
//	 20    4 reserved, 0
//
// The body follows. Limits: 512 items, 4096 bytes of key, 256 bytes of tenant, 4 MiB of body. A
// frame that breaks one is answered with status malformed and a text, and the connection is closed.
//
//	op 1 hello      request  u32 version (1), u32 process id
//	                reply    u32 version, u32 reserved, u64 epoch, u64 largest object in bytes
//	op 2 exists     request  count x (u16 key bytes, key)
//	                reply    count x i64 object bytes, -1 when it is not there
//	op 3 get        request  count x (u64 most bytes, u8 exact, u8 reserved, u16 key bytes, key)
//	                reply    no body; then count x item, in order:
//	                         u8 status, u8 reserved, u16 key bytes, u32 reserved, u64 object bytes,
//	                         key, and with status ok the object
//	op 4 remove     request  as exists
//	                reply    no body
//	op 5 reserve    request  u64 object bytes, u64 TTL in ns, u16 flags (1 soft pin), u16 tenant
//	                         bytes, u16 key bytes, u16 reserved, tenant, key
//	                reply    status ok: the client sends the object, bare, and then waits for
//	                         op 6 commit; exists: done; rejected: a text
//	op 6 commit     reply    status ok, exists or rejected (a text)
//	op 7 subscribe  request  no body
//	                reply    no body; from here on the server sends op 8 until either side closes
//	op 8 event      from the server: u64 sequence number, u8 kind (1 stored, 2 removed, 3 resync),
//	                u8 reserved, u16 key bytes, key
//
// Statuses: 0 ok, 1 miss, 2 rejected, 3 exists, 4 malformed.
//
// hello is the first frame of a connection. The epoch is random per server process: when it changes,
// the Store has lost everything, and clients forget what they knew. A Store and a client of different
// versions refuse each other in hello.
package ram
