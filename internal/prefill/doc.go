// SPDX-License-Identifier: Apache-2.0

// Package prefill is the Prefill/Decode role (P/D): it turns a conversation whose images are
// embeddings into an answer.
//
// A request comes in two calls. POST /v1/prepare carries the body that will follow and the
// embeddings it needs: the worker checks the request, measures the prompt, and finds out how each
// embedding comes: it is resident here, the Store has it, or an Encoder delivers it into memory that is
// granted, for all of those or for none. POST /v1/chat/completions then hands the prompt to package
// batch, which computes the text before the first image while Encoders still work, shares the model
// with all other requests, and asks this package to pick each token. Text is streamed as it comes; a
// client that reads slowly delays nobody.
//
// What is missing when it is needed (its Encoder died, its grant expired, this worker restarted) is
// answered with 409 and the indexes, before the first byte of the answer; the gateway prepares those
// items again. No request is ever answered without one of its pictures.
//
// A request keeps each of its embeddings until the piece of the prompt with its last use is computed; while
// one is still to come, those before it too, since the request may have to give up its place and compute them
// again. Then they stay, as residents, until the memory is needed for others; who uses one again has a
// reference of its own.
package prefill
