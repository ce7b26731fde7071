// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/alecthomas/kong"

	"afterimage/internal/bench"
)

// allCmd runs bench all.
type allCmd struct {
	benchFlags `embed:""`

	Scale  float64  `placeholder:"N" default:"1" help:"Scale of the modelled times in bench reassignment (default ${default})."`
	Report string   `placeholder:"DIR" default:"report" help:"Folder for the page of bench reassignment (default ${default})."`
	Skip   []string `placeholder:"NAME" help:"Benchmarks to leave out."`
	HTML   string   `name:"html" placeholder:"FILE" help:"Write the table as a page."`
}

// Help is shown below the command's own line.
func (*allCmd) Help() string {
	return "Runs resolver, publish, transport, gateway, decode, relay, overlap, smoke and reassignment one after the other, and prints what each is held to: our figure, the peer's, the ratio and the target. " +
		"It takes about half an hour and wants a quiet machine."
}

// inAll are the benchmarks of bench all, in their order.
var inAll = []string{"resolver", "publish", "transport", "gateway", "decode", "relay", "overlap", "smoke", "reassignment"}

// Run is called by the parser.
func (c *allCmd) Run(a *app) error {
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range c.Skip {
		if !slices.Contains(inAll, name) {
			return usageError{fmt.Errorf("--skip %s: there are %q", name, inAll)}
		}
	}
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	rep, err := bench.All{Binary: binary, Env: a.Env, Progress: a.Stderr, Runs: c.runs(a.kong.Kong)}.Run(ctx)
	page := bench.TablePage("Afterimage: all benchmarks", rep)
	return errors.Join(err, save(c.HTML, page.Write), c.report(a, rep))
}

// runs returns what to run, of the benchmarks that the grammar has. Those that take a kind of Store run with each.
func (c *allCmd) runs(k *kong.Kong) []bench.BenchRun {
	nodes := map[string]*kong.Node{}
	for _, n := range k.Model.Children {
		if n.Name == "bench" {
			for _, b := range n.Children {
				nodes[b.Name] = b
			}
		}
	}
	var runs []bench.BenchRun
	for _, name := range inAll {
		n := nodes[name]
		switch {
		case slices.Contains(c.Skip, name):
			continue
		case n == nil:
			runs = append(runs, bench.BenchRun{Name: name, Missing: "this build has no such benchmark"})
			continue
		}
		args := []string{name}
		if hasFlag(n, "peer") {
			args = append(args, "--peer", c.Peer)
		}
		if name == "reassignment" {
			args = append(args, "--scale", fmt.Sprint(c.Scale), "--report", c.Report, "--delivery", "direct")
		}
		if !hasFlag(n, "store") {
			runs = append(runs, bench.BenchRun{Name: name, Args: args})
			continue
		}
		for _, store := range []string{"ram", "mooncake"} {
			runs = append(runs, bench.BenchRun{Name: name + " (" + store + ")", Args: append(slices.Clone(args), "--store", store)})
		}
	}
	return runs
}

func hasFlag(n *kong.Node, name string) bool {
	return slices.ContainsFunc(n.Flags, func(f *kong.Flag) bool { return f.Name == name })
}
