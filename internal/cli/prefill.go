// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"

	"afterimage/internal/config"
)

// prefillCmd runs a prefill worker.
type prefillCmd struct {
	Own    config.Prefill `embed:"" group:"role"`
	Model  config.Model   `embed:"" group:"model"`
	Engine config.Engine  `embed:"" group:"engine"`
	common `embed:""`
}

// Run is called by the parser.
func (c *prefillCmd) Run(a *app) error {
	at := addresses{http: "prefill.listen", data: "prefill.data_listen", dataNetwork: "tcp"}
	name := func(cfg *config.Config) string { return cfg.Prefill.Name }
	return a.runRole(config.RolePrefill, c.File, name, at, runPrefill)
}

// runPrefill puts the role together and serves until ctx ends.
func runPrefill(ctx context.Context, cfg config.Config, p *process) error {
	return errors.New("prefill: not wired")
}
