// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// probeAll asks every instance once for its health and files the answers.
func (f *Front) probeAll(ctx context.Context) {
	var wg sync.WaitGroup
	for _, e := range f.reg.all() {
		wg.Go(func() {
			healthy := f.healthy(ctx, e.URL)
			if ctx.Err() != nil {
				return
			}
			evicted, back := f.reg.probed(e, healthy, time.Now())
			switch {
			case evicted:
				f.gone(e.URL, e.Addresses) // it may come back as another process
				f.cfg.Logger.Warn("instance evicted", "role", e.Role, "url", e.URL, "probes", f.cfg.Registry.FailThreshold)
			case back:
				f.came(e.Role, e.URL)
				f.cfg.Logger.Info("instance is back", "role", e.Role, "url", e.URL)
			}
		})
	}
	wg.Wait()
	f.reg.expire(time.Now())
	f.metrics.roster(f.reg.Status())
}

// healthy says whether the instance at url answers its health check with 200 in time.
func (f *Front) healthy(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.ProbeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
	if err != nil {
		return false
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	return err == nil && resp.StatusCode == http.StatusOK
}
