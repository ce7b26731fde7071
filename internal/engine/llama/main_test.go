// SPDX-License-Identifier: Apache-2.0

package llama

import (
	"flag"
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

// TestMain keeps the native log out of the output of passing tests.
func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Verbose() {
		slog.SetDefault(slog.New(slog.DiscardHandler))
	}
	goleak.VerifyTestMain(m)
}
