// SPDX-License-Identifier: Apache-2.0

// Package testkit holds what the tests of several packages share: the contract that every Store back
// end passes, and a Store that fails on demand. Only tests import it.
package testkit
