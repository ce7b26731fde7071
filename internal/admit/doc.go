// SPDX-License-Identifier: Apache-2.0

// Package admit stands between a network and the handlers of a role. Before a gateway, whichever workers are
// behind it, a Door asks clients for their keys, holds them to the limits of their tenants, and carries the
// deadlines that they set; where more requests come than may be in work, its queues let them in by turns of
// the tenants, or refuse them in time. Before a worker, Fleet asks gateways for the token of the fleet.
//
// A request goes through in two steps. The Door refuses what it can from its head, before a byte of the body
// is read, and leaves a Pass in its context. The handler, which knows whether there are images once it has
// read the body, asks the Pass for a place in line: text never waits for places that images take.
//
// Everything that may be reached without a key is in the table Routes; what is not in it is not open.
package admit
