// SPDX-License-Identifier: Apache-2.0

// Package vllmconsumer is a stand-in for the part of a vLLM prefill worker that takes embeddings: the control channel
// and the reservation rules of ECMooncakeConnector, and the TCP side of Mooncake's Transfer Engine. It answers the
// recorded exchanges of the original to the byte, but for what is random, and fails on demand.
//
// A Consumer has one Shard per tensor-parallel rank, each with memory of its own. Like the original it checks of a
// write only that it stays within the memory, and applies what it was sent even where the transfer was given up
// meanwhile: tests look for what that breaks.
package vllmconsumer
