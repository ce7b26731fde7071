// SPDX-License-Identifier: Apache-2.0

package control

// Draining is why a worker that was told to leave is not ready.
const Draining = "draining"

// DrainRequest tells a worker to leave: to announce that it takes no more requests, to finish those that it
// has, to store what it has and the Store lacks, and to end.
type DrainRequest struct {
	// TimeoutMS bounds the wait for requests in work; what is left after it is cut off. 0 is 10 minutes.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}
