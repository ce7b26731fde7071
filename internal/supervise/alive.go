// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"
)

// sickError is a child's own word that it must be restarted.
type sickError struct{ reason string }

func (e sickError) Error() string { return "must be restarted: " + e.reason }

// alive asks /livez every LiveEvery for as long as all is well. It returns how the child ended, or why it
// has to: it said so, or it answered none of LiveMisses questions. Answers are counted and not the time,
// which passes for a host or a supervisor that stands still, too.
func (c *child) alive(ctx context.Context, cfg *Config, address string) error {
	client := &http.Client{Timeout: cfg.LiveEvery, Transport: &http.Transport{DisableKeepAlives: true}}
	url := "http://" + Dialable(address) + "/livez"
	tick := time.NewTicker(cfg.LiveEvery)
	defer tick.Stop()
	for missed := 0; missed < cfg.LiveMisses; {
		select {
		case <-c.exited:
			return c.exitError()
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		reason, err := probe(ctx, client, url)
		switch {
		case err == nil:
			missed = 0
		case errors.Is(err, errNoAnswer):
			missed++
		default:
			return sickError{reason}
		}
	}
	select {
	case <-c.exited:
		return c.exitError()
	default:
		return fmt.Errorf("frozen: did not answer /livez %d times in a row, every %v", cfg.LiveMisses, cfg.LiveEvery)
	}
}

// replace makes sure that a child which has to be restarted is gone. One that said so itself may finish its
// requests, if that takes no longer than patience.
func (c *child) replace(ctx context.Context, why error, patience time.Duration) {
	if _, sick := errors.AsType[sickError](why); sick {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-c.exited:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	select {
	case <-c.exited:
	default:
		c.kill()
	}
}
