// SPDX-License-Identifier: Apache-2.0

// Package llama implements engine.Encoder and engine.Text with llama.cpp, called through purego, so
// that the program builds without cgo.
//
// Open loads libllama and its CPU back end; NewEncoder adds libmtmd. A Prefill/Decode process thus
// never maps the projector library, and an Encoder process never reads a weight of the text model.
// Rows leave the Encoder as plain float32 and enter the text model in the same form, and both sides
// compute what one process would have computed, to the bit, as long as Library.Identity is equal.
//
// One ABI is pinned. C structs are mirrored in abi.go, and Open compares the library's version and
// the values of its default structs with those that the mirror was written for: a library of another
// layout would load and read garbage.
//
// Native code aborts the process where an argument breaks its contract, so everything that reaches
// it is checked here first: token ids, row width and count, batch size, context size, finiteness.
// What cannot be checked (a crash inside the library) ends the process, which is why every role runs
// in a supervised process of its own.
//
// Concurrency: a Library serves a whole process. An mtmd context must never be entered twice, so an
// Encoder admits one caller at a time. All sequences of a Text live in one llama context, whose Runner
// belongs to one goroutine; its other methods may be called from any.
//
// Memory passed to native code is heap memory that a runtime.Pinner holds or memory outside the Go
// heap. Stack addresses never leave as uintptr, since stacks move.
package llama
