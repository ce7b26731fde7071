// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"afterimage/internal/config"
	"afterimage/internal/store/ram"
)

// storeCmd runs the Store.
type storeCmd struct {
	Own    config.Store `embed:"" group:"role"`
	common `embed:""`
}

// Run is called by the parser.
func (c *storeCmd) Run(a *app) error {
	at := addresses{http: "store.listen", data: "store.path", dataNetwork: "unix"}
	name := func(*config.Config) string { return "store" }
	return a.runRole(config.RoleStore, c.File, name, at, runStore)
}

// runStore puts the role together and serves until ctx ends.
func runStore(ctx context.Context, cfg config.Config, p *process) error {
	server, err := ram.NewServer(ram.Config{MaxBytes: int64(cfg.Store.Bytes), Logger: p.log})
	if err != nil {
		return err
	}
	p.registry.MustRegister(server.Collector())
	if err := p.ready(""); err != nil {
		return errors.Join(err, server.Close())
	}
	grp, ctx := errgroup.WithContext(ctx)
	grp.Go(func() error { return server.Serve(ctx, p.data) })
	grp.Go(func() error { return p.serve(ctx, p.mux(nil, nil)) })
	return errors.Join(grp.Wait(), server.Close())
}
