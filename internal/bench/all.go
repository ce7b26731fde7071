// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// All runs benchmarks one after the other, each as a process of its own, and puts what they are held to into one
// table.
type All struct {
	Binary   string
	Env      []string
	Progress io.Writer
	Runs     []BenchRun
}

// BenchRun is one benchmark: a name for its rows, and the arguments after "bench". Missing, if set, says why it cannot
// be run.
type BenchRun struct {
	Name    string
	Args    []string
	Missing string
}

// Run returns a row for everything that has a peer or a target, or could not be measured, and the summary of each
// benchmark. On an error it returns what it has.
func (a All) Run(ctx context.Context) (Report, error) {
	all := Report{Name: "all", Note: Machine()}
	for _, r := range a.Runs {
		if ctx.Err() != nil {
			return all, context.Cause(ctx)
		}
		if r.Missing != "" {
			all.Rows = append(all.Rows, Missing(r.Name, "all", r.Missing))
			continue
		}
		if a.Progress != nil {
			fmt.Fprintf(a.Progress, "bench %s\n", strings.Join(r.Args, " "))
		}
		rep, err := a.one(ctx, r)
		if err != nil {
			all.Rows = append(all.Rows, Missing(r.Name, "all", err.Error()))
			continue
		}
		all.Note += "\n" + rep.Summary()
		for _, row := range rep.Rows {
			if row.Peer != "" || row.OK != nil || row.NotMeasured != "" {
				row.Case = r.Name + ": " + row.Case
				all.Rows = append(all.Rows, row)
			}
		}
	}
	return all, nil
}

// allStop is how long a benchmark may take to end when it is told to.
const allStop = 20 * time.Second

// one runs one benchmark and reads its report.
func (a *All) one(ctx context.Context, r BenchRun) (Report, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, a.Binary, append(append([]string{"bench"}, r.Args...), "--json")...)
	cmd.Env, cmd.Stdout, cmd.Stderr = a.Env, &out, a.Progress
	// Ctrl-C reaches this process alone, which then has its child stop what that has started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = allStop
	err := cmd.Run()
	var rep Report
	if jerr := json.Unmarshal(out.Bytes(), &rep); jerr != nil {
		return rep, errors.Join(err, fmt.Errorf("bench %s printed no report", r.Name))
	}
	return rep, nil // a verdict may be bad, and is in the rows
}
