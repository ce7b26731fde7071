// SPDX-License-Identifier: Apache-2.0

// Package relay brings what the Store has straight to vLLM's prefill workers, so that no Encoder is asked.
//
//	picture ─► name at vLLM, contract            learned from what Encoders said (Learn)
//	        ─► object and sum from the Store     into the arena, checked; readers of one object share the read
//	        ─► package consumer                  the payload goes to the worker from where it was read to
//
// Bring answers for each picture of a request whether it is at the worker; what is not has to be encoded, for whatever
// reason. No error of the relay is one of the request.
//
// # What is checked
//
// A v3 object has no checksum, and the worker believes what it is sent. So nothing is sent whose place in the prompt
// was not reported by an Encoder for a picture of this size, and taken by a worker; whose rows, columns and dtype are
// not those that follow from it; or whose bytes do not have the sum that the Store keeps beside the object. The first
// gateway that sees an object makes the sum (Sum): it trusts what it finds then, as long as the values are finite.
//
// # Transfer ids
//
// They are a keyed hash of a counter (IDs). Which 1024 of them may be in use is in a file, so that the next process can
// abandon what a killed one left half-written. Until somebody does, a worker lets every later writer of the image wait
// for the dead one.
//
// A Relay may be used by any goroutine.
package relay
