// SPDX-License-Identifier: Apache-2.0

// Package arena owns the one memory region of a process in which every embedding lives.
//
// The region is a sealed memfd, mapped once and populated in the background. Embeddings are born in it
// (an engine writes into a Buf), stay in it while a cache holds them, and are sent from it; nothing is
// copied and the garbage collector never sees it. One descriptor covers all of it, so that it can be
// registered once with a Store and shown to neighbours on the host.
//
// # Ownership
//
// Reserve hands out a Buf with one reference, which belongs to the caller. Whoever keeps a Buf beyond
// a call Retains it, and Releases it exactly once; the last Release gives the range back. Between
// Reserve and Commit only the holder of that first reference writes; from Commit on everybody only
// reads. Who puts a head in front of what an engine writes reserves both in one piece, and has the engine
// write behind the room for the head. A slice from Bytes is valid as long as its reader holds a
// reference. Misuse (a Release too many, a Retain of a range that is gone) panics with
// "BUG: arena: ..." since going on would hand one range to two owners.
//
// # Concurrency
//
// All methods may be called from any goroutine. One mutex guards the free list; it is held for some tens
// of steps, and never during I/O or while another lock is taken. Reference counts are atomic.
//
// # Quarantine
//
// An I/O that did not end in a known way may still write into a range, or read from it, when its
// caller has long gone on. Quarantine keeps such a range from use until Reclaim.
//
// # Loans
//
// Share gives a neighbour on the host a read-only descriptor of the whole arena, which the neighbour
// maps once with MapShared. From then on a range changes hands as an offset and a length:
// Mapping.Buf makes a Buf of it that is used like any other, and whose last Release returns the loan.
// Who holds one for long listens, with OnRecall, for the lender's wish to have it back. The package
// does not know how neighbours talk to each other.
//
// # Allocation
//
// Ranges are whole multiples of 64 bytes. Free ones are found by size class, the lowest that is large
// enough is taken, and ranges that come back are merged with their free neighbours: no memory is tied to
// a class, so that what was freed as small ranges serves large ones at once.
//
// # Race detector
//
// The race detector does not watch mapped memory, so race builds put the region on the Go heap; File
// is nil there, and Share fails, unless Config.Mapped asks for a mapping. Callers copy then.
//
// # Debugging
//
// The build tag arenadebug poisons ranges that come back, checks the poison when they are handed out
// again, and keeps the stack of every Reserve, Retain and Release: panics of misuse, and Close of an
// arena in use, tell who holds what. Holders lists it. Without the tag none of this costs anything.
package arena
