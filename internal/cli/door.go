// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"afterimage/internal/admit"
	"afterimage/internal/config"
	"afterimage/internal/tenant"
)

const (
	// keysEvery is how often a gateway looks whether its keys have changed.
	keysEvery = time.Second
	// forgetEvery is how often it forgets tenants that are gone.
	forgetEvery = 10 * time.Minute
)

// newDoor returns what stands before a gateway. The caller calls stop when no requests come any more.
func newDoor(cfg config.Gateway, p *process) (d *admit.Door, stop func(), err error) {
	own := admit.Config{
		MaxText: cfg.MaxTextRequests, MaxImages: cfg.MaxImageRequests, MaxQueued: cfg.MaxQueued, MaxQueuedBytes: int64(cfg.MaxQueuedBytes), MaxWait: time.Duration(cfg.MaxWait),
		ClosedMetrics: !cfg.OpenMetrics, Registry: p.registry,
	}
	reload := make(chan os.Signal, 1)
	if cfg.KeysFile == "" && len(cfg.APIKeys) == 0 {
		return admit.New(own), hear(reload), nil
	}
	keys, err := tenant.Open(cfg.KeysFile, cfg.APIKeys, p.log)
	if err != nil {
		return nil, nil, err
	}
	own.Keys = keys.Set
	d = admit.New(own)
	if cfg.KeysFile == "" {
		return d, hear(reload), nil
	}
	deaf := hear(reload)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { keys.Watch(ctx, keysEvery, reload) })
	wg.Go(func() {
		tick := time.NewTicker(forgetEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.Forget()
			case <-ctx.Done():
				return
			}
		}
	})
	return d, func() {
		deaf()
		cancel()
		wg.Wait()
	}, nil
}

// hear sends SIGHUP to reload until the returned function is called. That is so also where there is nothing
// to read again: unheard, the signal would end the process and all requests in work.
func hear(reload chan os.Signal) (stop func()) {
	signal.Notify(reload, syscall.SIGHUP)
	return func() { signal.Stop(reload) }
}

// warnOpen says at start that anybody who reaches a worker may use it.
func (p *process) warnOpen(tokens []string) {
	host, _, err := net.SplitHostPort(p.http.Addr().String())
	if ip := net.ParseIP(host); err != nil || len(tokens) > 0 || ip != nil && ip.IsLoopback() {
		return
	}
	p.log.Warn("whoever reaches this port may use the worker; set fleet.token for all roles, or keep strangers off the network", "address", p.http.Addr())
}
