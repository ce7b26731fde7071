// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"afterimage/internal/bench"
)

// gatewayBenchCmd runs bench gateway.
type gatewayBenchCmd struct {
	benchFlags `embed:""`
	Rounds     int           `placeholder:"N" default:"3" help:"Times that each system is measured; the median counts (default ${default})."`
	During     time.Duration `placeholder:"TIME" default:"3s" help:"How long one measurement takes (default ${default})."`
}

// Help is shown below the command's own line.
func (*gatewayBenchCmd) Help() string {
	return "Starts stub workers, this gateway and its peers on free ports; takes about two minutes. Peers are what 'make peers' has put into .cache/peers."
}

// Run is called by the parser.
func (c *gatewayBenchCmd) Run(a *app) error {
	if err := atLeastOne("--rounds", c.Rounds); err != nil {
		return err
	}
	if c.During < 100*time.Millisecond {
		return usageError{fmt.Errorf("--during: %v is too short; give at least 100ms", c.During)}
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	g := bench.DefaultGateway()
	g.Binary, g.Env, g.Progress = binary, a.Env, a.Stderr
	g.Rounds, g.During = c.Rounds, c.During
	if slices.Contains([]string{"vllm", "all", "installed"}, c.Peer) {
		g.Peers = filepath.Join(".cache", "peers")
	}
	report, err := g.Run(ctx)
	if err != nil {
		return err
	}
	return c.report(a, report)
}

// stubWorkersCmd runs the stub workers of a benchmark.
type stubWorkersCmd struct{}

// Run is called by the parser.
func (stubWorkersCmd) Run(a *app) error {
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	return bench.ServeStubs(ctx, a.Stdout)
}

// stubVLLMCmd runs stub vLLM workers.
type stubVLLMCmd struct{}

// Run is called by the parser.
func (stubVLLMCmd) Run(a *app) error {
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	return bench.ServeVLLMStubs(ctx, a.Stdout)
}

// reverseProxyCmd runs a bare proxy.
type reverseProxyCmd struct {
	Port string `required:"" help:"Port of loopback to listen at."`
	To   string `required:"" help:"URL of a worker."`
}

// Run is called by the parser.
func (c reverseProxyCmd) Run(a *app) error {
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	return bench.ServeReverseProxy(ctx, "127.0.0.1:"+c.Port, c.To)
}
