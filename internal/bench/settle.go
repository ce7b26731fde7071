// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"os"
	"time"
)

// settleEvery is longer than the pauses of a mapping that is populated behind its lender.
const settleEvery = 150 * time.Millisecond

// settle waits until the memory of the Store and of this process is faulted in, which takes a core of each
// for a while: neither grows any more.
func (r *storeRig) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("bench: memory is not faulted in within %v", startTimeout))
	defer cancel()
	const calm, quiet = 1, 3 // MiB of growth that are none, and how often in a row
	for last, times := 0.0, 0; times < quiet; {
		theirs, err := r.counter(ctx, "process_resident_memory_bytes")
		if err != nil {
			return err
		}
		ours, err := residentMiB(os.Getpid())
		if err != nil {
			return err
		}
		sum := theirs/(1<<20) + ours
		if times++; sum-last > calm {
			last, times = sum, 0
		}
		if err := pause(ctx, settleEvery); err != nil {
			return err
		}
	}
	return nil
}
