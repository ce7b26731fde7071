// SPDX-License-Identifier: Apache-2.0

// Package ram is the embedded Store: one process keeps objects in its own arena and serves them to
// the workers of one host over a unix socket.
//
// # Data path
//
// Client and Server show each other their arenas once, as read-only descriptors over the socket. From
// then on a GET is a loan: the Server says where in its memory the object lies, and the client makes
// a Buf of that, whatever its size. Mostly it says so in an index that clients map as well, and the client
// pins the object by itself: such a GET takes no call. A PUT is one copy: the client says where in its memory the object
// lies, and the Server copies it into room that it reserved, checks its own copy, and only then lets
// it be found. The client's memory may change at any time, so nothing is ever checked there.
//
// Where memory cannot be shown (race builds, connections that are no sockets, Bufs of another arena,
// ClientConfig.Stream) the same calls stream the bytes over the connection. Callers need not know.
//
// # Loans
//
// A loan ends when the client returns it, with the last reference of its Buf, or when the client's
// process is gone; never by the Server's will, since there is no way to stop a reader. Three rules
// follow from that:
//
//   - All loans of a client belong to one connection, its link, which carries no calls. The client
//     closes it when it holds no loan and wants none. The Server takes the end of it, and nothing
//     else, for the end of the loans: a client that talks nonsense is ignored and stays a reader.
//   - A client that gave up a GET does not know whether it was lent something. It closes the lane and
//     says on its link which request was not answered; the Server takes back what that one was lent, or
//     refuses to answer it if it reads it only then.
//   - Memory that is on loan as a Server cuts a link, at its end, is not used again. It stays readable,
//     since each side maps it for itself, until the last loan is back. The client asks its holders to
//     let go then: the whole memory of the old Store lives as long as one of them.
//
// Loans hold at most half the Store; what is beyond is streamed. When a PUT lacks room the Server
// recalls loans, the oldest first, and the PUT waits up to 100 ms for them. A holder that listens to
// Buf.OnRecall (package cache does) puts a copy in the place of the loan, or drops it; a loan that a
// request is using comes back when the request is done. A PUT that does not fit then is refused.
//
// A PUT by loan that its client gave up is never stored: the client may have used its memory for
// something else before the copy was complete. The client closes the lane before it takes its memory
// back, and the Server looks for that after the copy and before the commit.
//
// # Pins
//
// A pin is a loan that a client took without a call. The Server's index has an entry for each object, as
// far as there is room, and an allowance for each client: a number, and how many bytes it may pin. Each
// client has a table of slots, memory of its own that the Server maps read-only. To pin an object the
// client
//
//	1 reads its allowance,
//	2 finds the entry, and reads it between two equal, odd states,
//	3 writes the object's id and the allowance's number to a free slot,
//	4 reads its allowance again, which has to be the same word,
//	5 reads the entry's state again, which has to be the same too;
//
// else it clears the slot, and tries again or asks. The last Release clears the slot. The Server, before it
// frees an object,
//
//	a makes the entry's state even,
//	b gives every allowance the next number, and no bytes,
//	c reads all slots, and makes loans of those with the number that was in force until b,
//	d opens the allowances, and frees the object unless it is on loan.
//
// All these are atomic, and in one order for everybody. A client that succeeds was past 5 before a. The first
// b after its 4 ends the number that its slot has, so the c after that makes a loan of the slot; it comes
// before d, since a comes after 4. That the number has 16 bits and comes round does no harm for that reason. A
// client that fails clears the slot again: the Server may have made a loan of it, and finds that it ended.
// TestPinProtocol runs every order of the steps.
//
// b and c alone bring the account up to date: before loans or room are counted, before somebody looks at
// the figures, and when a client says that there is something to see: a pin ended that was recalled, or many
// objects were touched. Touches, a ring in the table, say what was pinned and when, so that the coldest leaves
// first and every hit counts. What may still be lent, half the Store at most, d shares out; beside that, a client
// may pin as much as it alone has pinned. A slot with another number, or beyond the allowance, pins nothing, so a
// client that writes nonsense pins no more than it could borrow. The end of its link is the end of its pins. Of one
// that was cut off and lives on, the allowance stays without bytes, and what it has pinned is kept from use.
//
// Nothing is taken from a Store that is gone: having pinned, a client looks whether its link is still there.
//
// # Room
//
// Objects are bounded by Config.MaxBytes and leave in the order in which they were last read, those
// with a soft pin last. What is being read, lent or pinned is never evicted, and nothing is for a PUT
// that would be refused all the same. A tenant with a quota (Config.Quota) makes room at its own cost. Objects
// with a time to live leave at the end of it. Past 97 % the Server evicts ahead of need, down to 94 %, so that
// PUTs seldom wait for it.
//
// # What is not there
//
// A sketch, in a region of its own that clients map as well, tells for sure that a key is not stored.
// It is updated before a PUT is answered, so a key that it excludes is answered without a call, once the
// client has seen that the Server's process is still there. The index tells only what is there: an object
// may have no entry.
//
// # Connections
//
// A lane carries one call at a time, so a reply can only meet the call that asked for it. A call may be
// several requests, which are answered in order. A call that
// is cancelled or late closes its lane, which is never used again. Reads and writes have lanes of
// their own: a slow PUT never holds up a GET. Room that a lane reserved goes back when the lane ends,
// so a writer that dies half way leaves nothing behind and never blocks its key: whoever commits first
// stores, and all others are told that the object is there.
//
// A client looks for an answer for a while before it sleeps (package quick): of a PUT by loan, for as long as the copy
// of a small object takes, too.
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
//	op 1 hello      request  u32 version (4), u32 process id, u32 flags (1 make a link), u32 reserved,
//	                         u64 link to join or 0, u64 number of the lane in it, u64 bytes of memory,
//	                         u64 bytes of table; with flag 1, the descriptors of those that are not 0
//	                reply    u32 version, u32 flags (1 the link is made or joined, 2 the Server maps the
//	                         client's memory), u64 epoch, u64 largest object in bytes, u64 link,
//	                         u64 bytes of memory, u64 bytes of sketch, u64 bytes of index, u64 the
//	                         client's place in the index or 1<<64-1; of a link that is made, the
//	                         descriptors of the three
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
//	op 9 lend       request  as get
//	                reply    count x (u8 status, 7 reserved, u64 object bytes, u64 offset in the Server's
//	                         memory, u64 loan), then the objects with status ok, in order
//	op 10 take      request  u64 offset in the client's memory, then as reserve
//	                reply    status ok, exists or rejected (a text)
//
//	op 14 list      request  count of entries wanted; u16 prefix bytes, u16 key bytes, prefix, key to go
//	                         on behind
//	                reply    count x (u64 object bytes, u64 age in ns, u64 ns since the last read, u64 TTL
//	                         left in ns or 0, u32 readers, u16 flags (1 soft pin), u16 tenant bytes,
//	                         u16 key bytes, 6 reserved, tenant, key), in byte order of keys; no
//	                         entries: the end
//	op 15 totals    request  no body
//	                reply    JSON: objects, bytes, limits and counts (store.Totals)
//
// On a link, unanswered; op 11 also on its lanes, before a request:
//
//	op 11 return    from the client: count x u64 loan; the Server looks at the client's table, too
//	op 12 lane end  from the client: count x (u64 lane, u64 request that was not answered, or 0)
//	op 13 recall    from the server: count x u64 loan; of a pin, 1<<63 with the slot in bits 48 to 57 and
//	                the object's id below
//
// Statuses: 0 ok, 1 miss, 2 rejected, 3 exists, 4 malformed, 5 lent.
//
// Descriptors are those of sealed memfds, opened for reading, sent with the first byte of their frame
// (SCM_RIGHTS). Offsets and lengths are checked against the mapping, by both sides. The layout of the index is
// with type index, that of the table with type account.
//
// hello is the first frame of a connection. The epoch is random per server process: when it changes,
// the Store has lost everything, and clients forget what they knew. A Store and a client of different
// versions refuse each other in hello.
package ram
