// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"

	"afterimage/internal/config"
)

// encoderCmd runs an Encoder.
type encoderCmd struct {
	Own    config.Encoder `embed:"" group:"role"`
	Model  config.Model   `embed:"" group:"model"`
	Engine config.Engine  `embed:"" group:"engine"`
	common `embed:""`
}

// Run is called by the parser.
func (c *encoderCmd) Run(a *app) error {
	at := addresses{http: "encoder.listen"}
	name := func(cfg *config.Config) string { return cfg.Encoder.Name }
	return a.runRole(config.RoleEncoder, c.File, name, at, runEncoder)
}

// runEncoder puts the role together and serves until ctx ends.
func runEncoder(ctx context.Context, cfg config.Config, p *process) error {
	return errors.New("encoder: not wired")
}
