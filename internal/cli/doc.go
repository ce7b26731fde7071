// SPDX-License-Identifier: Apache-2.0

// Package cli is the program: its grammar, the wiring of roles, their ordered start and stop.
//
// One struct is the grammar; the fields that configure roles come from package config, which also
// holds their help. A role command brings up what every process has (configuration, log, listeners,
// lifeline, signals) and hands it to run<Role>, where the role's own parts are put together:
//
//	store.go encoder.go prefill.go gateway.go   one role each
//	up.go                                       all of them, as children of this process
//
// The exit status is 0, 1 for a failure, 2 for a command line or configuration that cannot be
// used, or 3 for a benchmark that could not measure everything. A child of up that ends with a status before it is ready ends up as well.
package cli
