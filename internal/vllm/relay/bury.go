// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"time"
)

const (
	minBury = time.Second
	maxBury = time.Minute
	buryFor = 10 * time.Minute // twice the time after which consumers forget transfers
)

// bury abandons what an earlier process left at a consumer, however long that does not answer.
func (r *Relay) bury(l left, at string) {
	end := time.Now().Add(buryFor)
	for wait := minBury; ; wait = min(2*wait, maxBury) {
		err := r.cfg.Consumers.Abandon(r.ctx, at, l.transfers, true)
		if err == nil || time.Now().After(end) {
			if err != nil {
				r.cfg.Logger.Warn("a consumer was not told what a killed gateway may have left there", "consumer", at, "cause", err)
			}
			if err := r.ids.settled(l.epoch, at); err != nil {
				r.cfg.Logger.Warn("relay: state", "cause", err)
			}
			return
		}
		select {
		case <-r.ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
