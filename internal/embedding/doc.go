// SPDX-License-Identifier: Apache-2.0

// Package embedding defines what an embedding is called and how it is laid out in memory: element
// types, identifiers, namespaces and keys, contracts, layouts, and the two object formats v3
// (interchange with vLLM) and a1 (native).
//
// The package does no I/O and holds no state. An object is one contiguous byte range, header and
// payload adjacent, so that one buffer is one PUT, one GET and one transfer. Payloads are row-major
// and little endian.
//
// An object is sealed in place: the engine writes the payload at PayloadOffset, then Seal writes
// the header in front of it. Open checks an object against the key and the contract of the reader
// and returns views into the same memory; it copies nothing but the layout.
package embedding
