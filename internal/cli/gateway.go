// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"

	"afterimage/internal/config"
)

// gatewayCmd runs a gateway.
type gatewayCmd struct {
	Own    config.Gateway `embed:"" group:"role"`
	common `embed:""`
}

// Run is called by the parser.
func (c *gatewayCmd) Run(a *app) error {
	at := addresses{http: "gateway.listen"}
	name := func(*config.Config) string { return "gateway" }
	return a.runRole(config.RoleGateway, c.File, name, at, runGateway)
}

// runGateway puts the role together and serves until ctx ends.
func runGateway(ctx context.Context, cfg config.Config, p *process) error {
	return errors.New("gateway: not wired")
}
