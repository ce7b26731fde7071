// SPDX-License-Identifier: Apache-2.0

// Package proxy holds the mechanics of passing requests on: bodies taken in at a decent pace into memory
// that is used again, answers handed to clients event by event, and errors stripped of what is not
// theirs to know. It decides nothing; the front doors of the two kinds of fleet are built from it.
//
// A Buffer is shared by counting, may be read from any goroutine, and is written by nobody once it was
// taken in. A Reply belongs to one goroutine.
package proxy
