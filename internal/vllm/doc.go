// SPDX-License-Identifier: Apache-2.0

// Package vllm is the front door of a fleet of vLLM workers whose Encoders are split from prefill and
// decode. It takes the place of vLLM's own EPD proxy: the same flags, the same registration, the same bodies
// to the workers.
//
// The path of a request:
//
//	read the body, find its media while it comes in, name each by the SHA-256 of its URL
//	  ─► choose decode, prefill and the Encoder of each part
//	  ─► one call per Encoder with its parts ─► what each Encoder reports of them
//	  ─► the client's body with the parts replaced by what was reported ─► [prefill] ─► decode ─► relay
//
// Nothing is written to the client before the first byte of the decode worker's answer. A call that fails
// before that is made again elsewhere, with fresh transfer ids; no attempt changes the client's body.
//
// The Registry is the roster of workers: static ones are put in at start, others register. It and the Front
// may be used from any goroutine. What goes to workers is built by pure functions (body.go, report.go).
package vllm
