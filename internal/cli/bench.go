// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"afterimage/internal/bench"
	"afterimage/internal/config"
)

// benchCmd measures.
type benchCmd struct {
	Smoke        smokeCmd        `cmd:"" help:"What every installation should hold: a Store hit against an encode, what the gateway adds, idle memory, start time."`
	Resolver     resolverCmd     `cmd:"" help:"What a Store hit, a partial hit and a miss cost the resolver, by size and number of objects."`
	Publish      publishCmd      `cmd:"" help:"What a PUT costs next to a memcpy and a checksum of the same bytes, and what a request pays for it."`
	Transport    transportCmd    `cmd:"" help:"How embeddings get to a P/D: by loan and over TCP, when memory is short, and from the Store."`
	Overlap      overlapCmd      `cmd:"" help:"What it brings that a prefill worker begins with a prompt while Encoders work on its pictures (modelled accelerator)."`
	Decode       decodeCmd       `cmd:"" help:"What continuous batching costs, next to a bare loop over the same sequences, and how soon first tokens come."`
	All          allCmd          `cmd:"" help:"Every benchmark, in one table of our figures, those of peers, and targets."`
	Serve        serveCmd        `cmd:"" help:"Put a load on any OpenAI endpoint: time to first token and per token, goodput, where embeddings came from."`
	Compare      compareCmd      `cmd:"" help:"Compare two results of bench serve."`
	Reassign     reassignCmd     `cmd:"" name:"reassignment" help:"The published experiment: what the Store is worth when images are asked of another Encoder than the one that has them."`
	Simulate     foretellCmd     `cmd:"" help:"How near 'afterimage simulate' comes to a fleet under the same traffic (modelled accelerator)."`
	Relay        relayCmd        `cmd:"" help:"What it takes to deliver an embedding into a vLLM consumer's memory, against vLLM's own producer."`
	Gateway      gatewayBenchCmd `cmd:"" help:"What a gateway before vLLM workers takes and adds, against vLLM's own proxy and others: requests per second, latency, memory."`
	StubVLLM     stubVLLMCmd     `cmd:"" name:"stub-vllm" hidden:"" help:"vLLM workers that do no work, for measuring a gateway."`
	ReverseProxy reverseProxyCmd `cmd:"" hidden:"" help:"The least that a proxy does, to compare a gateway with."`
	StubWorkers  stubWorkersCmd  `cmd:"" hidden:"" help:"Workers that do no work, for measuring a gateway."`
	StubLender   stubLenderCmd   `cmd:"" hidden:"" help:"An Encoder that only delivers, for measuring the transport."`
}

// benchFlags are those of every benchmark.
type benchFlags struct {
	JSON  bool   `help:"Print one JSON document instead of a table."`
	Check bool   `help:"Exit with 1 if a target is missed, or 3 if none is but something could not be measured."`
	Peer  string `placeholder:"NAME" enum:"none,redis,python,dummy,vllm,all,installed" default:"installed" help:"Programs to compare with: none, redis, python, dummy, vllm, all, or installed (default ${default})."`
}

// smokeCmd runs bench smoke.
type smokeCmd struct {
	benchFlags `embed:""`
}

// Help is shown below the command's own line.
func (*smokeCmd) Help() string {
	return "Starts fleets of the demo model on free ports and stops them; takes under a minute on two quiet cores. " +
		"It compares this program with itself only, so --peer changes nothing here. Configuration in the environment is left out."
}

// Run is called by the parser.
func (c *smokeCmd) Run(a *app) error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	s := bench.DefaultSmoke()
	s.Binary, s.Env, s.Progress = binary, a.Env, a.Stderr
	report, err := s.Run(ctx)
	if err != nil {
		return err
	}
	return c.report(a, report)
}

// atLeastOne checks the value of a flag that counts.
func atLeastOne(flag string, n int) error {
	if n < 1 {
		return usageError{fmt.Errorf("%s: %d; give at least 1", flag, n)}
	}
	return nil
}

// storeBenchFlags are those of the benchmarks of the reuse core.
type storeBenchFlags struct {
	benchFlags `embed:""`
	Store      string `enum:"ram,mooncake" default:"ram" placeholder:"KIND" help:"Store to measure: ram, or mooncake, for which it starts a Mooncake cluster on this host (default ${default})."`
	Dir        string `name:"mooncake-dir" placeholder:"DIR" env:"AFTERIMAGE_MOONCAKE_DIR" help:"Folder of mooncake_master and mooncake_client. Empty looks where 'make deps-mooncake' puts them. [$$AFTERIMAGE_MOONCAKE_DIR]"`
}

// resolverCmd runs bench resolver.
type resolverCmd struct {
	storeBenchFlags `embed:""`
	Copy            bool `xor:"part" help:"Measure only hits that are copied into the own arena, against a memcpy of the same bytes."`
	Serial          bool `xor:"part" help:"Measure only one request for all objects against one for each, and the first after start."`
}

// Run is called by the parser.
func (c *resolverCmd) Run(a *app) error {
	var only bench.Only
	switch {
	case c.Copy:
		only = bench.OnlyCopy
	case c.Serial:
		only = bench.OnlySerial
	}
	if only != "" && c.Store != config.StoreRAM {
		return usageError{fmt.Errorf("--copy and --serial are parts of the benchmark of --store %s", config.StoreRAM)}
	}
	return c.storeBench(a, func(b bench.StoreBench, ctx context.Context) (bench.Report, error) {
		b.Only = only
		return b.Resolver(ctx)
	}, bench.MooncakeBench.Resolver)
}

// publishCmd runs bench publish.
type publishCmd struct {
	storeBenchFlags `embed:""`
}

// Run is called by the parser.
func (c *publishCmd) Run(a *app) error {
	return c.storeBench(a, bench.StoreBench.Publish, bench.MooncakeBench.Publish)
}

// storeBench runs one of the benchmarks of the reuse core.
func (f *storeBenchFlags) storeBench(a *app, onRAM func(bench.StoreBench, context.Context) (bench.Report, error),
	onMooncake func(bench.MooncakeBench, context.Context) (bench.Report, error)) error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	if f.Store == config.StoreMooncake {
		b := bench.DefaultMooncakeBench()
		if b.Dir, err = findMooncake(f.Dir, caches()); err != nil {
			return err
		}
		b.Env, b.Progress, b.Python = a.Env, a.Stderr, peersPython(caches())
		if f.Peer != "all" && f.Peer != "installed" {
			b.Peers = slices.DeleteFunc(b.Peers, func(name string) bool { return name != f.Peer })
		}
		return f.print(a)(onMooncake(b, ctx))
	}
	b := bench.DefaultStoreBench()
	b.Binary, b.Env, b.Progress = binary, a.Env, a.Stderr
	b.Redis = slices.Contains([]string{"redis", "all", "installed"}, f.Peer)
	return f.print(a)(onRAM(b, ctx))
}

// print returns what takes the outcome of a benchmark.
func (f *benchFlags) print(a *app) func(bench.Report, error) error {
	return func(r bench.Report, err error) error {
		if err != nil {
			return err
		}
		return f.report(a, r)
	}
}

// peersPython returns the Python of make peers, "" where it was not run to its end.
func peersPython(caches []string) string {
	for _, c := range caches {
		venv := filepath.Join(c, "peers", "venv")
		if _, err := os.Stat(filepath.Join(venv, "installed.txt")); err == nil {
			return filepath.Join(venv, "bin", "python")
		}
	}
	return ""
}

// report prints r and, with --check, ends the program with its verdict.
func (f *benchFlags) report(a *app, r bench.Report) error {
	write := r.WriteTable
	if f.JSON {
		write = r.WriteJSON
	}
	if err := write(a.Stdout); err != nil {
		return err
	}
	if code := r.ExitCode(); f.Check && code != exitOK {
		a.kong.Exit(code)
	}
	return nil
}
