// SPDX-License-Identifier: Apache-2.0

// Package load puts requests on an OpenAI endpoint and measures the answers as a client sees them.
//
// A Shot is a request and the time at which it is due. Open loop: every Shot is sent when it is due,
// however many are unanswered; all times count from when it was due, and how late it was sent is told
// apart (lag). Closed loop: so many are under way at once, each due when the one before it is answered.
// Answers are read as streams of server-sent events.
//
// Run starts a goroutine per request and returns when all have ended, or soon after its context does;
// what was answered until then is in the records.
package load
