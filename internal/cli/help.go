// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"afterimage/internal/man"
)

// helpCmd shows help as --help does.
type helpCmd struct {
	Command []string `arg:"" optional:"" placeholder:"COMMAND" help:"Command to explain; none lists all."`
}

// Run is called by the parser.
func (c *helpCmd) Run(a *app) error {
	for _, w := range c.Command {
		if strings.HasPrefix(w, "-") {
			return usageError{fmt.Errorf("%s is no command", w)}
		}
	}
	_, err := a.parser().Parse(append(slices.Clone(c.Command), "--help")) // which ends the program, if there is such a command
	return usageError{err}
}

// printHelp writes what the parser knows of a command, then examples and exit statuses.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	command := ""
	if n := ctx.Selected(); n != nil {
		command = man.Command(n)
	}
	return writeHelpTail(ctx.Stdout, command)
}

func writeHelpTail(w io.Writer, command string) error {
	var b strings.Builder
	all := examplesOf(command)
	if len(all) > 0 { // a command that only groups others has none
		b.WriteString("\nExamples:\n")
	}
	for _, e := range all {
		fmt.Fprintf(&b, "  # %s\n  %s\n", e.Does, e.Line)
	}
	b.WriteString("\nExit status:\n")
	for _, s := range statusesOf(command) {
		fmt.Fprintf(&b, "  %d  %s\n", s.Code, s.Means)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// statusesOf returns the exit statuses of a command.
func statusesOf(command string) []man.Status {
	ok := man.Status{Code: exitOK, Means: "All went well."}
	failure := man.Status{Code: exitFailure, Means: "It failed; standard error says why."}
	usage := man.Status{Code: exitUsage, Means: "The command line or the configuration cannot be used; nothing was begun."}
	all := []man.Status{ok, failure, usage}
	first, _, _ := strings.Cut(command, " ")
	switch {
	case first == "bench":
		all[1].Means = "It failed, or with --check a target was missed."
		all = append(all, man.Status{Code: exitUnmeasured, Means: "With --check: no target was missed, but some could not be measured."})
	case command == "doctor":
		all[0].Means, all[1].Means = "No check failed; some may warn.", "A check failed; its line says which, and the mend."
	case command == "health":
		all[0].Means, all[1].Means = "All that were asked can work.", "One cannot, or there is none; the output says which."
	case command == "store verify":
		all[0].Means = "No object is bad; there may be none at all."
		all[1].Means = "An object is bad and was not removed, or it failed; standard error says why."
	case slices.Contains([]string{"up", "encoder", "prefill", "gateway", "store", "store serve", "decode"}, command):
		all[0].Means = "It was told to stop, and did."
	}
	return all
}
