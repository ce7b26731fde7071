// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"slices"

	"afterimage/internal/bench"
)

// relayCmd runs bench relay.
type relayCmd struct {
	benchFlags `embed:""`
	Dir        string `name:"mooncake-dir" placeholder:"DIR" env:"AFTERIMAGE_MOONCAKE_DIR" help:"Folder of mooncake_master and mooncake_client. Empty looks where 'make deps-mooncake' puts them. [$$AFTERIMAGE_MOONCAKE_DIR]"`
	Rounds     int    `placeholder:"N" default:"5" help:"Times that each side is measured; the median counts (default ${default})."`
}

// Help is shown below the command's own line.
func (*relayCmd) Help() string {
	return "Starts a bare vLLM consumer and vLLM's own producer, which 'make peers' installs; takes half a minute. Without them nothing can be measured."
}

// Run is called by the parser.
func (c *relayCmd) Run(a *app) error {
	if err := atLeastOne("--rounds", c.Rounds); err != nil {
		return err
	}
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	b := bench.DefaultRelay()
	b.Env, b.Progress, b.Rounds.Rounds = a.Env, a.Stderr, c.Rounds
	if slices.Contains([]string{"vllm", "all", "installed"}, c.Peer) {
		b.Python = peersPython(caches())
	}
	if b.Python != "" {
		var err error
		if b.Dir, err = findMooncake(c.Dir, caches()); err != nil {
			return err
		}
	}
	return c.print(a)(b.Run(ctx))
}
