// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"afterimage/internal/bench"
	"afterimage/internal/model"
)

// reassignCmd runs bench reassignment.
type reassignCmd struct {
	benchFlags `embed:""`

	Report   string   `placeholder:"DIR" default:"report" help:"Folder for index.html and result.json (default ${default})."`
	Scale    float64  `placeholder:"N" default:"1" help:"Divide modelled times and gaps; values are printed as they would be without. Above 2, spans and seeding are shown and not checked (default ${default})."`
	Ideal    bool     `default:"true" negatable:"" help:"Also measure the ceiling: ES once more with a free fan-out."`
	Delivery string   `placeholder:"MODE" enum:"p2p,direct,all" default:"p2p" help:"p2p: M6, EL and ES as published. direct: also with P/Ds that read the Store themselves, without and with what they kept. all is direct (default ${default})."`
	Engine   string   `placeholder:"KIND" enum:"device,llama" default:"device" help:"device models the published accelerator; llama encodes for real, on 2 Encoders and 1 P/D of this machine (default ${default})."`
	Requests int      `placeholder:"N" default:"0" help:"Requests; 0 takes 128, or 12 with llama."`
	Rate     float64  `placeholder:"N" default:"0" help:"Requests per second; 0 takes 2, or 0.5 with llama."`
	Seed     uint64   `placeholder:"N" default:"0" help:"Seed of the trace; 0 takes that of the calibration."`
	Workload []string `placeholder:"NAME" enum:"reassign,replace,hot-spot,scale-out,encoder-loss,all" help:"Instead of the experiment, hold routing against the Store in reassign, replace, hot-spot, scale-out, encoder-loss, or all; --scale is 4 then unless it is given."`
	Policy   []string `placeholder:"NAME" enum:"none,affinity,store,both,all" default:"all" help:"Policies for --workload: none, affinity, store, both, or all (default ${default})."`
	Only     []string `placeholder:"NAME" help:"Configurations to run instead: M6, EL, ES, ideal, direct, resident."`
}

// Help is shown below the command's own line.
func (*reassignCmd) Help() string {
	return "Reruns the published experiment with a modelled accelerator and everything else real: payloads, Store, resolver, publisher, transport, gateway. " +
		"At scale 1 it takes about 8 minutes, 13 with --delivery direct, and wants a quiet machine. Ctrl-C writes what was measured until then."
}

// Run is called by the parser.
func (c *reassignCmd) Run(a *app) error {
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	if len(c.Workload) > 0 {
		return c.workloads(ctx, a)
	}
	r, done, err := c.reassign(a)
	if err != nil {
		return err
	}
	defer done()
	out, err := r.Run(ctx)
	if out == nil {
		return usageError{err}
	}
	out.Command = strings.Join(append([]string{a.name()}, a.Args...), " ")
	if merr := os.MkdirAll(c.Report, 0o755); merr != nil {
		return errors.Join(err, merr)
	}
	page := filepath.Join(c.Report, "index.html")
	err = errors.Join(err, save(page, out.Page().Write), save(filepath.Join(c.Report, "result.json"), out.Write))
	fmt.Fprintln(a.Stderr, "wrote", page)
	if rerr := c.report(a, out.Report()); rerr != nil {
		return errors.Join(err, rerr)
	}
	return err
}

// reassign returns the experiment that the flags describe, and what to do after it.
func (c *reassignCmd) reassign(a *app) (r bench.Reassign, done func(), err error) {
	r, done = bench.DefaultReassign(), func() {}
	if r.Binary, err = os.Executable(); err != nil {
		return r, done, err
	}
	r.Env, r.Progress, r.Scale = a.Env, a.Stderr, c.Scale
	if c.Engine == "llama" {
		if r.Model, done, err = benchModel(); err != nil {
			return r, done, err
		}
		r.Requests, r.Rate, r.Configurations = 12, 0.5, []string{"EL", "ES", "ideal"}
	}
	if !c.Ideal {
		r.Configurations = r.Configurations[:len(r.Configurations)-1]
	}
	if c.Delivery != "p2p" {
		r.Configurations = append(r.Configurations, "direct", "resident")
	}
	if len(c.Only) > 0 {
		r.Configurations = c.Only
	}
	if c.Requests != 0 {
		r.Requests = c.Requests
	}
	if c.Rate != 0 {
		r.Rate = c.Rate
	}
	if c.Seed != 0 {
		r.Seed = c.Seed
	}
	return r, done, nil
}

// workloads holds routing against the Store.
func (c *reassignCmd) workloads(ctx context.Context, a *app) error {
	w := bench.DefaultWorkloads()
	var err error
	if w.Binary, err = os.Executable(); err != nil {
		return err
	}
	w.Env, w.Progress = a.Env, a.Stderr
	if c.Scale != 1 {
		w.Scale = c.Scale
	}
	if c.Requests != 0 {
		w.Requests = c.Requests
	}
	if c.Rate != 0 {
		w.Rate = c.Rate
	}
	if !slices.Contains(c.Workload, "all") {
		w.Workloads = c.Workload
	}
	if !slices.Contains(c.Policy, "all") {
		w.Policies = c.Policy
	}
	cells, err := w.RunTable(ctx)
	if err != nil && len(cells) == 0 {
		return err
	}
	rep := bench.WorkloadReport(cells, w.Scale, err)
	if c.JSON {
		return errors.Join(err, c.report(a, rep))
	}
	err = errors.Join(err, bench.WriteWorkloads(a.Stdout, cells, rep))
	if code := rep.ExitCode(); c.Check && code != exitOK {
		a.kong.Exit(code)
	}
	return err
}

// benchModel makes the pair of random weights that real encoding is measured with, and returns the flags that
// name it.
func benchModel() (flags []string, done func(), err error) {
	dir, err := os.MkdirTemp("", "afterimage-model-")
	if err != nil {
		return nil, func() {}, err
	}
	done = func() { os.RemoveAll(dir) }
	if err := model.WriteRandom(dir, model.RandomOptions{Size: model.Bench, Seed: 1}); err != nil {
		done()
		return nil, func() {}, err
	}
	return []string{"--model", filepath.Join(dir, model.TextFile), "--mmproj", filepath.Join(dir, model.ProjectorFile), "--threads", "1"}, done, nil
}
