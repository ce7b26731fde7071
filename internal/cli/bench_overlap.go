// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"

	"afterimage/internal/bench"
)

// overlapCmd runs bench overlap.
type overlapCmd struct {
	benchFlags `embed:""`
}

// Help is shown below the command's own line.
func (*overlapCmd) Help() string {
	return "Starts a fleet with and one without overlap on free ports, both with the modelled accelerator; takes some 15 s. It compares this program " +
		"with itself only, so --peer changes nothing here."
}

// Run is called by the parser.
func (c *overlapCmd) Run(a *app) error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	o := bench.DefaultOverlap()
	o.Binary, o.Env, o.Progress = binary, a.Env, a.Stderr
	report, err := o.Run(ctx)
	if err != nil {
		return err
	}
	return c.report(a, report)
}
