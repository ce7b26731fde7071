// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"afterimage/internal/bench"
	"afterimage/internal/sim"
)

// serveCmd runs bench serve.
type serveCmd struct {
	traceFlags `embed:""`
	outFlags   `embed:""`

	URL        string        `placeholder:"URL" env:"AFTERIMAGE_URL" default:"http://127.0.0.1:8000" help:"Endpoint, ours or any other of OpenAI's shape (default ${default}). [$$AFTERIMAGE_URL]"`
	Key        string        `name:"api-key" placeholder:"TEXT" env:"OPENAI_API_KEY" help:"API key to send. [$$OPENAI_API_KEY]"`
	Model      string        `placeholder:"NAME" help:"Model to ask for; empty takes the first that the server lists."`
	Size       string        `placeholder:"MIX" default:"448" help:"Pixels of the square pictures: a number, or numbers with weights such as 224:0.5,896:0.5 (default ${default})."`
	Concurrent int           `placeholder:"N" default:"0" help:"Keep N requests under way instead of sending each when it is due; 0 is the open loop (default ${default})."`
	GoodTTFT   time.Duration `name:"good-ttft" placeholder:"TIME" default:"2s" help:"An answer counts as good if its first token comes within this (default ${default})."`
	GoodTPOT   time.Duration `name:"good-tpot" placeholder:"TIME" default:"100ms" help:"And if its further tokens take at most this each (default ${default})."`
	Record     string        `placeholder:"FILE" help:"Write what was sent as a trace, for 'afterimage simulate'."`
	Compare    string        `placeholder:"FILE" help:"Compare with a result that --out wrote before."`
}

// outFlags say where a result goes.
type outFlags struct {
	Out       string  `placeholder:"FILE" help:"Write the result, all requests included, as JSON."`
	HTML      string  `name:"html" placeholder:"FILE" help:"Write a page with tables and plots."`
	Tolerance float64 `placeholder:"SHARE" default:"0.1" help:"How much worse than the older result a figure may be (default ${default})."`
	JSON      bool    `help:"Print one JSON document instead of a table."`
	Check     bool    `help:"Exit with 1 if a figure is worse than the older result's by more than --tolerance."`
}

// Help is shown below the command's own line.
func (*serveCmd) Help() string {
	return "Open loop: a request is sent when it is due, however many are unanswered, and its times count from then, so that a server that stands still hides nothing. " +
		"Requests come as a trace file says, or are made up. Words of text are sent for --text-tokens, four bytes for each (one on the modelled device). " +
		"Ctrl-C ends the run and reports what was measured until then."
}

// Run is called by the parser.
func (c *serveCmd) Run(a *app) error {
	older, err := c.older()
	if err != nil {
		return err
	}
	t, err := c.load(os.Stdin)
	if err != nil {
		return err
	}
	s, err := c.serve(a, t)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	r, err := s.Run(ctx)
	if err != nil && len(r.Records) == 0 {
		return err
	}
	r.Command, r.Load = strings.Join(append([]string{a.name()}, a.Args...), " "), c.describe(t)
	rep := r.Report()
	results := []*bench.Result{&r}
	if older != nil {
		rep = bench.Compare(older, &r, c.Tolerance)
		results = append(results, older)
	}
	err = errors.Join(err, save(c.Record, func(w io.Writer) error { return r.RecordTrace(w, t) }),
		save(c.Out, r.Write), c.report(a, rep, "bench serve", results...))
	if r.Interrupted {
		err = errors.Join(err, errors.New("interrupted: the figures are of what was answered until then"))
	}
	return err
}

// older reads the result to compare with, before anything is sent.
func (c *serveCmd) older() (*bench.Result, error) {
	if c.Compare == "" {
		return nil, nil
	}
	r, err := bench.ReadResult(c.Compare)
	if err != nil {
		return nil, usageError{err}
	}
	return &r, nil
}

// serve returns the load that the flags describe.
func (c *serveCmd) serve(a *app, t *sim.Trace) (bench.Serve, error) {
	if err := gatewayAt(c.URL); err != nil {
		return bench.Serve{}, err
	}
	sides, err := sim.ParseMix(c.Size)
	if err != nil {
		return bench.Serve{}, usageError{fmt.Errorf("--size: %w", err)}
	}
	for _, s := range sides {
		if s.Value < 16 || s.Value > 8192 {
			return bench.Serve{}, usageError{fmt.Errorf("--size: pictures of %d pixels; give 16 to 8192", s.Value)}
		}
	}
	if c.Concurrent < 0 || t.Images > maxPictures {
		return bench.Serve{}, usageError{fmt.Errorf("--concurrent %d must not be negative, and %d distinct images not more than %d", c.Concurrent, t.Images, maxPictures)}
	}
	return bench.Serve{
		URL: strings.TrimSuffix(strings.TrimRight(c.URL, "/"), "/v1"), Key: c.Key, Model: c.Model, Trace: t, Sides: sides, Closed: c.Concurrent, Seed: c.Seed, Progress: a.Stderr,
		Goal: bench.Goal{TTFTMS: c.GoodTTFT.Seconds() * 1000, TPOTMS: c.GoodTPOT.Seconds() * 1000},
	}, nil
}

// maxPictures bounds the pictures that are made before a run.
const maxPictures = 1 << 18

// report prints a report and writes the page about it.
func (f *outFlags) report(a *app, rep bench.Report, title string, results ...*bench.Result) error {
	err := save(f.HTML, func(w io.Writer) error { return bench.Page(title, rep, results...).Write(w) })
	flags := benchFlags{JSON: f.JSON, Check: f.Check}
	return errors.Join(err, flags.report(a, rep))
}

// save writes a file; an empty name is none.
func save(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// compareCmd compares two results of bench serve.
type compareCmd struct {
	outFlags `embed:""`

	Old string `arg:"" placeholder:"OLD" help:"Result that bench serve --out wrote."`
	New string `arg:"" placeholder:"NEW" help:"Another one."`
}

// Run is called by the parser.
func (c *compareCmd) Run(a *app) error {
	older, err := bench.ReadResult(c.Old)
	if err != nil {
		return usageError{err}
	}
	newer, err := bench.ReadResult(c.New)
	if err != nil {
		return usageError{err}
	}
	return c.report(a, bench.Compare(&older, &newer, c.Tolerance), "bench compare", &newer, &older)
}
