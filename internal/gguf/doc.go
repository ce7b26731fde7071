// SPDX-License-Identifier: Apache-2.0

// Package gguf reads and writes GGUF model files, the format that llama.cpp loads.
//
// A file is a header (metadata pairs, then one record per tensor) followed by aligned tensor data.
// Open reads the header only, so a model of any size opens in milliseconds, and it treats the file
// as hostile: no length is believed before it is compared with the bytes that are left, so memory
// stays within a small multiple of the file's size. What Open returns is immutable and safe for
// concurrent use; it holds no file open. Row reads the few rows that a caller wants as float32.
//
// A Writer collects metadata and tensors whose values are computed while they are written, chunk by
// chunk, so that a model never has to be in memory.
//
// The package does not quantise, does not run models, and knows nothing about architectures.
package gguf

import "errors"

var (
	// ErrFormat: the file is not GGUF, or breaks its rules.
	ErrFormat = errors.New("gguf: bad file")
	// ErrTruncated: the file ends before what its header describes.
	ErrTruncated = errors.New("gguf: truncated file")
)

const (
	magic = "GGUF"
	// version is what a Writer writes. Version 2 has the same layout and is read too; version 1
	// has 32-bit lengths.
	version = 3
	// defaultAlign is the alignment of tensor data unless the key general.alignment says otherwise.
	defaultAlign = 32
	alignKey     = "general.alignment"
	// maxDims, maxNameBytes: limits of the format.
	maxDims      = 4
	maxNameBytes = 1<<16 - 1
)

// The types of metadata values on disk.
const (
	kindUint8 uint32 = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindString
	kindArray
	kindUint64
	kindInt64
	kindFloat64
)

// padded rounds n up to a multiple of align, which is a power of two.
func padded(n, align int64) int64 { return (n + align - 1) &^ (align - 1) }
