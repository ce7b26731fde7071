// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// errInterrupted is the cause with which a context ends on the first signal.
var errInterrupted = errors.New("told to stop by a signal")

// errTerminated is that cause when the signal was SIGTERM: workers then see to it that nobody misses them.
var errTerminated = errors.New("told to leave by SIGTERM")

// interruptible returns a context that ends with the first SIGINT or SIGTERM. The second one means
// "now" and calls again. The caller must call the returned function.
func interruptible(ctx context.Context, again func()) (context.Context, func()) {
	sigs := make(chan os.Signal, 2)
	signal.Notify(sigs, syscall.SIGINT, syscall.SIGTERM)
	ctx, stop := onSignals(ctx, sigs, again)
	return ctx, func() {
		signal.Stop(sigs)
		stop()
	}
}

// onSignals is interruptible for signals from a channel.
func onSignals(ctx context.Context, sigs <-chan os.Signal, again func()) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			var sig os.Signal
			select {
			case sig = <-sigs:
			case <-quit:
				return
			}
			if n == 0 && sig == syscall.SIGTERM {
				cancel(errTerminated)
			} else if n == 0 {
				cancel(errInterrupted)
			} else {
				again()
			}
		}
	})
	return ctx, func() {
		close(quit)
		wg.Wait()
		cancel(context.Canceled)
	}
}
