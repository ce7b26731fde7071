// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"

	"afterimage/internal/bench"
)

// foretellCmd runs bench simulate.
type foretellCmd struct {
	benchFlags `embed:""`

	Policy   []string `placeholder:"NAME" enum:"none,affinity,store,both" default:"none,affinity,store,both" help:"Policies to compare: none, affinity, store, both (default all)."`
	Scale    float64  `placeholder:"N" default:"1" help:"Divide modelled times and gaps; values are printed as they would be without (default ${default})."`
	Requests int      `placeholder:"N" default:"160" help:"Requests per policy (default ${default})."`
	Rate     float64  `placeholder:"N" default:"4" help:"Requests per second (default ${default})."`
	Seed     uint64   `placeholder:"N" default:"1" help:"Seed of the traffic (default ${default})."`
}

// Help is shown below the command's own line.
func (*foretellCmd) Help() string {
	return "Makes a traffic up, puts it on a fleet whose accelerator is modelled and whose Store, transport and gateway are real, takes the same traffic through 'afterimage simulate', " +
		"and holds what was foretold against what was measured. It takes about four minutes and wants a quiet machine."
}

// Run is called by the parser.
func (c *foretellCmd) Run(a *app) error {
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	w := bench.DefaultForetell()
	var err error
	if w.Binary, err = os.Executable(); err != nil {
		return err
	}
	w.Env, w.Progress, w.Policies = a.Env, a.Stderr, c.Policy
	w.Scale, w.Requests, w.Rate, w.Seed = c.Scale, c.Requests, c.Rate, c.Seed
	all, err := w.Run(ctx)
	if err != nil && len(all) == 0 {
		return err
	}
	return errors.Join(err, c.report(a, bench.ForetellReport(all, w.Scale, err)))
}
