// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"

	"afterimage/internal/config"
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
	return errors.New("store: not wired")
}
