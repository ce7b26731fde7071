// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"fmt"
	"time"
)

const (
	minPoll = 2 * time.Millisecond
	maxPoll = 20 * time.Millisecond
)

// follow waits for other writers.
func (r *shardRun) follow(ctx context.Context, items []*reserved) {
	ctx, cancel := bound(ctx, r.p.c.cfg.FollowTimeout)
	defer cancel()
	for wait := minPoll; len(items) > 0; wait = min(2*wait, maxPoll) {
		left := items[:0]
		for _, at := range items {
			var s *status
			err := r.call(ctx, statusRequest(at.of.Transfer), &s)
			switch {
			case err != nil:
				at.err, r.broken = fmt.Errorf("status: %w", err), err
			case s == nil:
				at.err = ErrLost
			case s.Ready:
				at.how = Followed
			default:
				left = append(left, at)
			}
		}
		if items = left; len(items) == 0 {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			r.fail(items, fmt.Errorf("another writer of this embedding was not done in %v", r.p.c.cfg.FollowTimeout))
			return
		}
	}
}
