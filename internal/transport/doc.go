// SPDX-License-Identifier: Apache-2.0

// Package transport delivers embeddings from an Encoder to a Prefill worker (P/D).
//
// The receiver decides about memory. Receiver.Grant reserves room for all objects of a request or for
// none, in arrival order; a grant travels to the Encoder with the control calls, and Sender.Send
// writes one object, as it lies in the sender's arena, straight into the granted range of the
// receiver's. The receiver checks the object against its key and contract and confirms. Ticket.Wait
// then hands the object out.
//
// Bytes go over one TCP connection per peer pair in fixed 64-byte frames (frame.go, docs/wire.md).
// Every frame carries transfer, attempt and generation; a late or wrong one is drained, counted and
// answered, and the connection goes on. Bytes that are no frame at all close their connection and
// touch nothing else.
//
// Ownership: Send borrows its Buf until it returns. A ticket owns one reference of its range until
// Wait hands it to the caller, or until the transfer fails, is cancelled or expires; while a writer
// fills the range the goroutine that reads from the connection holds it, and lets go within
// WriterTimeout whatever the peer does.
//
// The package does not retry: a transfer that failed is repaired by a fresh grant (design: 409
// "missing"). It does not encrypt, and knows nothing of requests.
package transport
