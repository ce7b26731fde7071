// SPDX-License-Identifier: Apache-2.0

// Package gateway is the OpenAI front door of a fleet: it fetches and names the media of a request,
// chooses the workers, brings encode and prefill together, and streams the answer back untouched.
//
// The path of a request:
//
//	read the body once ─► find media parts ─► file bytes (data: URL or guarded fetch)
//	  ─► header check, digest, identifier, geometry ─► key and contract per distinct image
//	  ─► choose P/D ─► prepare (checks the request, finds embeddings, grants memory for the others)
//	  ─► per image of those: join the flight of an equal one, or
//	     choose an Encoder ─► encode calls ────────────┐ at the same time
//	  ─► chat call, media replaced by item parts ──────┴─► relay
//
// Nothing is written to the client before the first byte of the worker's answer, so that every fault
// up to there is a proper status. A P/D that lacks an item answers 409; a worker that dies breaks its
// call; in both cases the attempt is repeated with fresh grants, at most Config.Repairs times. After
// the first byte a fault ends the stream with an error frame.
//
// What the gateway knows of its workers comes from probes (fleet.go) and is a hint: every call to a
// worker can fail and is then mended here.
package gateway
