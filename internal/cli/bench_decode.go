// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"

	"afterimage/internal/bench"
	"afterimage/internal/config"
	"afterimage/internal/engine"
)

// decodeCmd runs bench decode.
type decodeCmd struct {
	benchFlags `embed:""`
	Model      string `placeholder:"FILE" help:"Text model in GGUF. With none named, that of the demo."`
}

// Help is shown below the command's own line.
func (*decodeCmd) Help() string {
	return "Compares the scheduler of a P/D with a bare loop over the same sequences of the same library, and the first token of requests " +
		"that come at once with what the step budget allows. It compares this program with itself only, so --peer changes nothing here."
}

// Run is called by the parser.
func (c *decodeCmd) Run(a *app) error {
	if c.Model != "" {
		if _, err := os.Stat(c.Model); err != nil {
			return fileFault("--model "+c.Model, err)
		}
	}
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	d := bench.DefaultDecode()
	d.Progress = a.Stderr
	d.Open = func(slots int) (engine.Text, error) {
		cfg := config.DefaultConfig()
		cfg.Engine.Slots, cfg.Engine.Context, cfg.Model.Path = slots, 1024, c.Model
		var err error
		if cfg.Model, err = modelOf(cfg.Model, cfg.Engine.Kind, caches()); err != nil {
			return nil, err
		}
		return openText(cfg)
	}
	report, err := d.Run(ctx)
	if err != nil {
		return err
	}
	return c.report(a, report)
}
