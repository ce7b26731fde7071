// SPDX-License-Identifier: Apache-2.0

// Package batch shares one text model between requests: continuous batching over the sequences of an
// engine.Runner.
//
// One goroutine owns the Runner and works in steps. A step puts requests into sequences (place), appends
// one token to every request that decodes, in one call, and then prefills prompts within a budget of
// tokens and rows (share), so that a long prompt delays the tokens of others by one budget at most.
// What a step does is decided by functions over plain values, which know no engine.
//
// Requests are served in the order in which they came. Whoever cannot be placed waits, and nobody
// overtakes, except one that would wait for its embeddings. When memory runs out, the request that came
// last gives its sequence up and computes its prompt again later; a request that holds a sequence while it
// waits for embeddings gives way to one that can work. The first in line always goes on, so there is no
// deadlock. An error of the Runner ends the request that it is about, and no other.
//
// Text and rows enter the model in pieces that the budget cuts, and a piece of one token is computed apart
// from a piece of several. cut therefore never makes a piece of one where a lone request has none: the
// bits of an answer depend neither on the budget nor on other requests.
//
// A sequence that no request holds keeps what it computed. A request whose prompt begins in the same
// way, by token ids and by the full names of embeddings, continues from there. Answers are not reused:
// they were computed token by token, and a prompt is not.
//
// A request may end where its prompt is computed, with its state saved, and another begin from such a state
// (engine.States): prefill and decode then run in two processes. A request that lost its sequence restores the state again.
//
// Ownership: rows that were delivered stay the caller's, who must keep them until Released. Next is called
// on the scheduler's goroutine and must not wait.
package batch
