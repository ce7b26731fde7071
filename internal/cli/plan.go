// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"afterimage/internal/sim"
)

// planCmd sizes a fleet for a trace.
type planCmd struct {
	traceFlags `embed:""`
	modelFlags `embed:""`

	TTFT     time.Duration `name:"ttft" required:"" placeholder:"TIME" help:"Goal: most that the time to first token may be."`
	Quantile int           `enum:"50,90,99" placeholder:"P" default:"90" help:"Percent of requests that must meet it: 50, 90 or 99 (default ${default})."`
	Most     int           `placeholder:"N" default:"50000" help:"Requests of the trace to plan with, from its start (default ${default})."`
	JSON     bool          `help:"Print one JSON document instead of a table."`
}

// Help is shown below the command's own line.
func (*planCmd) Help() string {
	return "Looks for the fewest workers, Encoders and P/Ds together, then the smallest Store that meet the goal, without reuse and with it, and how that changes if the traffic does. " +
		"It models; see 'afterimage simulate' for what it leaves out."
}

// planned is one row: what is needed under one change, without and with reuse.
type planned struct {
	Change  string     `json:"change"`
	Without *sim.Sized `json:"without_reuse,omitempty"`
	With    *sim.Sized `json:"with_reuse,omitempty"`
	Fault   string     `json:"fault,omitempty"` // why there is none
}

// Run is called by the parser.
func (c *planCmd) Run(a *app) error {
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	whole, err := c.load(os.Stdin)
	if err != nil {
		return err
	}
	if c.Most < 1 {
		return usageError{fmt.Errorf("--most %d: give at least 1", c.Most)}
	}
	t := whole.Head(c.Most)
	var rows []planned
	for _, change := range sim.Changes() {
		row, err := c.plan(ctx, t, change)
		if err != nil {
			return err
		}
		if len(rows) == 0 && row.Fault != "" {
			return fmt.Errorf("%s", row.Fault)
		}
		rows = append(rows, row)
	}
	if c.JSON {
		return json.NewEncoder(a.Stdout).Encode(map[string]any{
			"trace": c.describe(t), "goal_s": c.TTFT.Seconds(), "quantile": c.Quantile, "assumptions": c.assumptions(t), "plan": rows,
		})
	}
	return c.print(a.Stdout, t, rows)
}

// plan sizes the fleet under one change.
func (c *planCmd) plan(ctx context.Context, t *sim.Trace, change sim.Change) (planned, error) {
	t, m := change.Apply(t, c.model(1, 1))
	row := planned{Change: change.Name}
	ps := c.policies(sim.Unlimited)
	goal := sim.Goal{Quantile: c.Quantile, TTFT: c.TTFT}
	// With reuse is both ways: affinity to find embeddings near, the Store to find them at all.
	for into, p := range map[**sim.Sized]sim.Policy{&row.Without: ps[0], &row.With: ps[3]} {
		if into == &row.Without { // not even an Encoder's own cache
			m.CacheBytes, m.ResidentBytes = 0, 0
		} else {
			m.CacheBytes, m.ResidentBytes = int64(c.CacheBytes), int64(c.ResidentBytes)
		}
		s, err := sim.Plan(ctx, t, m, p, goal)
		switch {
		case ctx.Err() != nil:
			return row, context.Cause(ctx)
		case err != nil:
			row.Fault = err.Error()
		default:
			*into = &s
		}
	}
	return row, nil
}

func (c *planCmd) print(w io.Writer, t *sim.Trace, rows []planned) error {
	fmt.Fprintf(w, "%s\ngoal: time to first token at most %v for %d %% of requests\n", c.describe(t), c.TTFT, c.Quantile)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "if\tEncoders without reuse\twith\tP/Ds without\twith\tStore\tencodes saved\tTTFT p50 without\twith\tp90 without\twith\tp99 without\twith")
	for _, r := range rows {
		if r.Without == nil || r.With == nil {
			fmt.Fprintf(tab, "%s\t%s\n", r.Change, r.Fault)
			continue
		}
		x, y := r.Without, r.With
		fmt.Fprintf(tab, "%s\t%d\t%d\t%d\t%d\t%s\t%.1f %%\t%.3f s\t%.3f s\t%.3f s\t%.3f s\t%.3f s\t%.3f s\n", r.Change, x.Encoders, y.Encoders, x.Prefills, y.Prefills,
			size(y.StoreBytes), 100*y.Outcome.HitRate(), x.Outcome.P50, y.Outcome.P50, x.Outcome.P90, y.Outcome.P90, x.Outcome.P99, y.Outcome.P99)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	assumed := append(c.assumptions(t), "with reuse: the same image goes to the same Encoder, and what it lacks comes from the Store; without: every image is encoded",
		"no worker is spare: add what you need for failures and maintenance")
	_, err := fmt.Fprintln(w, "assumed: "+strings.Join(assumed, "\nassumed: "))
	return err
}
