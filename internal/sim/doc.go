// SPDX-License-Identifier: Apache-2.0

// Package sim answers what-if questions from image traces: what a policy of reuse would give a given
// traffic, and how many workers a goal for latency takes.
//
// A Trace says when requests came and which images they held. It is read from a file (Read), or made up
// (Generate). Run takes it through a Model: a fleet whose times are given, and a Policy. The fleet is
// modelled, not run: Encoders and P/Ds are queues that work serially, caches and Store are the real
// rules with sizes instead of bytes. Requests are taken in the order in which they came, so a run costs a
// few hundred nanoseconds per image and needs no events. Plan searches for the smallest fleet that meets a
// goal.
//
// What the model leaves out: an answer is never cut, no worker fails, comes or goes, no network is full, and
// prompts of one P/D are prefilled one after the other, with a decode step of the others before each StepTokens
// positions. Since no Encoder comes or goes, affinity leaves each image with one Encoder, and no other ever holds
// it: what gateways know of the caches of Encoders makes no difference here, and is not modelled.
//
// A Trace is read-only once made; Run may be called for one Trace from several goroutines.
package sim
