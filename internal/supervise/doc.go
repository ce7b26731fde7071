// SPDX-License-Identifier: Apache-2.0

// Package supervise runs the role processes of `afterimage up`: it starts them in order, waits until
// they are ready, restarts those that die, and leaves nothing behind when it stops.
//
// # Parent and child
//
// Each role is a child in a process group of its own, so that Ctrl-C reaches the supervisor alone,
// which then stops the roles in order. A child inherits two pipes:
//
//   - the lifeline, which carries no data. Its other end closes when the supervisor is gone, however it
//     went; the child then removes the run directory and exits (Lifeline).
//   - the notify pipe, on which it says once where it listens (Notify) or why it never will (Refuse).
//
// A Spec may name another program instead, which knows neither pipe: it counts as ready once it takes
// connections, and the kernel kills it when the supervisor is gone.
//
// # Life of a process
//
//	starting ──listens──► loading ──/readyz is 200──► ready
//	    ▲                    │                          │
//	    │ back-off           └── exits, is restarted ───┤
//	    └──── down ◄────────────────────────────────────┘
//
// A child that refuses, or ends with an exit status before it was ever ready, has said what it lacks:
// Start fails with its words. Once it was ready, or when a signal killed it, it is restarted, with
// the addresses it had, after 100 ms doubling to 5 s.
//
// A ready role is asked for /livez now and then. One that says 503 there is told to stop, which lets it
// finish its requests, and restarted; one that does not answer for half a minute is killed and restarted.
//
// The package knows nothing of configuration: a Spec brings the arguments.
package supervise
