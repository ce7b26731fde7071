// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"net/http"
	"sync"

	"afterimage/internal/config"
	"afterimage/internal/dashboard"
	"afterimage/internal/gateway"
	"afterimage/internal/store"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/store/ram"
)

// serveDashboard mounts the page of g. The caller calls stop when nobody looks any more.
func serveDashboard(mux *http.ServeMux, g *gateway.Gateway, cfg config.Config, p *process) (stop func()) {
	page := dashboard.Config{Version: version, View: g.View, Registry: p.registry, WriteTimeout: writeTimeout}
	stop = func() {}
	switch {
	case cfg.Gateway.Store != "":
		s := &looker{path: cfg.Gateway.Store}
		page.Totals, stop = s.totals, s.close
	case cfg.Mooncake.Admin != "":
		page.Totals = mooncake.NewListing(nil, cfg.Mooncake.Admin).Totals
	}
	dashboard.New(page).Routes(mux)
	return stop
}

// looker asks the ram Store for its totals, over a connection that it makes when somebody first looks.
type looker struct {
	path string
	mu   sync.Mutex // guards c
	c    *ram.Client
}

func (l *looker) totals(ctx context.Context) (t store.Totals, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c == nil {
		if l.c, err = ram.Dial(ctx, ram.ClientConfig{Path: l.path, Polls: asleep}); err != nil {
			return t, err
		}
	}
	return l.c.Totals(ctx) // the client dials again when the Store was restarted
}

func (l *looker) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c != nil {
		l.c.Close()
	}
}
