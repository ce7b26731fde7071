// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"

	"afterimage/internal/bench"
)

// transportCmd runs bench transport.
type transportCmd struct {
	benchFlags `embed:""`
}

// Help is shown below the command's own line.
func (*transportCmd) Help() string {
	return "It compares this program with a bare loop and a memcpy in the same run, so --peer changes nothing here. Takes half a minute, and 700 MiB of memory."
}

// Run is called by the parser.
func (c *transportCmd) Run(a *app) error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	b := bench.DefaultTransportBench()
	b.Binary, b.Env, b.Progress = binary, a.Env, a.Stderr
	return c.print(a)(b.Run(ctx))
}

// stubLenderCmd runs the other process of bench transport.
type stubLenderCmd struct {
	Socket string `required:""`
	Size   []int  `required:""`
}

// Run is called by the parser.
func (c *stubLenderCmd) Run(a *app) error {
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	return bench.ServeLender(ctx, c.Socket, c.Size, a.Stdout)
}
