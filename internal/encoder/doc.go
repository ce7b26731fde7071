// SPDX-License-Identifier: Apache-2.0

// Package encoder is the Encoder role: it turns images into embeddings and delivers them to Prefill
// workers, computing only what neither its own cache nor the shared Store holds.
//
// One encode call carries whole image files and, per image, the grants of the Prefill workers that
// wait for it. The path of one item:
//
//	header read ─► layout by picture size ─► exact contract
//	   ─► resolver: own cache, then one batch to the Store ─┐ hit
//	   ─► miss: join a flight of the same identifier, or    │
//	      decode, encode into the arena, seal ──────────────┤
//	              └─► publisher (background) ─► Store       ▼
//	                                          delivered to every grant, confirmed
//
// A deliver call carries no files: it waits for what an encode call of another request is about to make, or
// takes what the cache has, and sends it to grants of its own (board.go).
//
// A hit never decodes the picture: the contract follows from the size in the file's header. Items of
// a call fail alone. The answer comes after delivery, so that "delivered" means that the Prefill
// worker has checked the bytes.
//
// Ownership: an object is born in the arena; the flight's result, the cache, the publisher and each
// delivery hold references of their own.
package encoder
