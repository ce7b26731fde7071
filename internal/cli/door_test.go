// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"log/slog"
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"afterimage/internal/config"
)

// A gateway without a file of keys lives on when it is told to read one again. Unheard, the signal ends
// this process.
func TestDoorWithoutKeysFileOutlivesReload(t *testing.T) {
	for _, keys := range [][]string{nil, {"a-key-of-the-clear"}} {
		p := &process{log: slog.New(slog.NewTextHandler(io.Discard, nil)), registry: prometheus.NewRegistry()}
		_, stop, err := newDoor(config.Gateway{APIKeys: keys, MaxTextRequests: 1, MaxImageRequests: 1}, p)
		if err != nil {
			t.Fatal(err)
		}
		runtime.LockOSThread() // a thread has a signal of its own before the call returns
		if err := unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGHUP); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
		stop()
	}
}
