// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"afterimage/internal/config"
	"afterimage/internal/store/ram"
)

// storeCmd runs the Store, which needs no further word, or looks into one.
type storeCmd struct {
	Serve  storeServeCmd  `cmd:"" default:"withargs" help:"Run the Store. It is what 'afterimage store' does without another command."`
	Ls     storeLsCmd     `cmd:"" help:"List the objects."`
	Stat   storeStatCmd   `cmd:"" help:"Sum the Store up, or describe one object."`
	Get    storeGetCmd    `cmd:"" help:"Show what one object is, or write it to a file."`
	Verify storeVerifyCmd `cmd:"" help:"Read objects and check them: format, key, sums, finite values."`
	Rm     storeRmCmd     `cmd:"" help:"Remove objects."`
	Warm   storeWarmCmd   `cmd:"" help:"Have images encoded, so that their embeddings are there when somebody asks."`
	Export storeExportCmd `cmd:"" help:"Write objects to one file."`
	Import storeImportCmd `cmd:"" help:"Read objects from such a file."`
}

// storeServeCmd runs the Store.
type storeServeCmd struct {
	Own    config.Store `embed:"" group:"role"`
	common `embed:""`
}

// Run is called by the parser.
func (c *storeServeCmd) Run(a *app) error {
	at := addresses{http: "store.listen", data: "store.path", dataNetwork: "unix"}
	name := func(*config.Config) string { return "store" }
	return a.runRole(config.RoleStore, c.File, name, at, runStore)
}

// runStore puts the role together and serves until ctx ends.
func runStore(ctx context.Context, cfg config.Config, p *process) error {
	server, err := ram.NewServer(shelfConfig(cfg.Store, p.log))
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

// shelfConfig is what the configuration says of the Store's memory.
func shelfConfig(s config.Store, log *slog.Logger) ram.Config {
	quota := int64(s.TenantQuotaBytes)
	return ram.Config{MaxBytes: int64(s.Bytes), Quota: func(string) int64 { return quota }, Logger: log}
}
