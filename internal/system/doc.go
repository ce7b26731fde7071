// SPDX-License-Identifier: Apache-2.0

// Package system holds the tests of all roles together: a Store, Encoders, a Prefill worker and a
// gateway in one process, over real sockets, on the modelled device. It has no code of its own.
package system
