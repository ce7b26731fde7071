// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"afterimage/internal/complete"
)

// version is set when the program is linked.
var version = "dev"

// Exit statuses.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	// exitUnmeasured is for a benchmark that missed nothing but could not measure everything.
	exitUnmeasured = 3
)

// Program is one run of the program: what main has from the operating system.
type Program struct {
	Name   string   // the program's own name as the user typed it; "" for afterimage
	Args   []string // without that name
	Env    []string // as os.Environ
	Stdout io.Writer
	Stderr io.Writer
}

// grammar is the command line.
type grammar struct {
	Up      upCmd           `cmd:"" group:"serve" help:"Run a whole fleet on this host: Store, Encoders, prefill worker and gateway, each a process of its own."`
	Store   storeCmd        `cmd:"" group:"serve" help:"Run the shared Store of this host, or look into one: ls, stat, get, verify, rm, warm, export, import."`
	Encoder encoderCmd      `cmd:"" group:"serve" help:"Run one Encoder: images to embeddings."`
	Decode  decodeWorkerCmd `cmd:"" group:"serve" help:"Run one decode worker: computed prompts to answers."`
	Prefill prefillCmd      `cmd:"" group:"serve" help:"Run one prefill worker: prompts and embeddings to answers."`
	Gateway gatewayCmd      `cmd:"" group:"serve" help:"Run the OpenAI-compatible front door of Encoders and prefill workers that run elsewhere."`

	Top   topCmd   `cmd:"" group:"use" help:"Watch a fleet in the terminal: workers, requests, reuse, the Store."`
	Trace traceCmd `cmd:"" group:"use" help:"Show where the embeddings of a request came from, by which road, and what it waited for."`
	Drain drainCmd `cmd:"" group:"tools" help:"Have an Encoder, a prefill worker or a decode worker leave without a request noticing."`
	Ask   askCmd   `cmd:"" group:"use" help:"Ask a question about images, and see where each embedding came from."`

	Model    modelCmd    `cmd:"" group:"tools" help:"Make model pairs for demonstrations and tests."`
	Bench    benchCmd    `cmd:"" group:"tools" help:"Measure and compare with targets."`
	Simulate simulateCmd `cmd:"" group:"tools" help:"Say what reuse would give a traffic: a trace, taken through a modelled fleet under several policies."`
	Plan     planCmd     `cmd:"" group:"tools" help:"Say how many Encoders and P/Ds and how large a Store a traffic takes, with and without reuse."`

	Keys   keysCmd   `cmd:"" group:"tools" help:"Make API keys, and look at a file of them."`
	Config configCmd `cmd:"" group:"tools" help:"Look at the configuration."`
	Doctor doctorCmd `cmd:"" group:"tools" help:"Look for what keeps this host, or its Mooncake cluster, from serving."`

	Health healthCmd `cmd:"" group:"tools" help:"Ask the roles of this host whether they can work, and exit with 1 if one cannot."`

	Completion completionCmd `cmd:"" group:"tools" help:"Print what a shell has to read to complete command lines: bash, zsh or fish."`
	Man        manCmd        `cmd:"" hidden:"" help:"Write manual pages."`
	Help       helpCmd       `cmd:"" group:"tools" help:"Explain a command, as --help does."`

	Version     versionCmd       `cmd:"" group:"tools" help:"Print the version."`
	VersionFlag kong.VersionFlag `name:"version" short:"v" help:"Print the version and exit."`
}

// groups are the headings of help, for commands and for flags.
var groups = []kong.Group{
	{Key: "serve", Title: "Serve:"},
	{Key: "use", Title: "Use:"},
	{Key: "tools", Title: "Tools:"},
	{Key: "trace", Title: "Trace:"},
	{Key: "role", Title: "This role:"},
	{Key: "fleet", Title: "Fleet:"},
	{Key: "gateway", Title: "Gateway:"},
	{Key: "vllm", Title: "Before vLLM workers (the flags of vLLM's EPD proxy):"},
	{Key: "relay", Title: "Relay: what the Mooncake Store has goes straight to vLLM workers:"},
	{Key: "model", Title: "Model:"},
	{Key: "engine", Title: "Engine:"},
	{Key: "delivery", Title: "Delivery:"},
	{Key: "transport", Title: "Data connections:"},
	{Key: "token", Title: "Between gateways and workers:"},
	{Key: "media", Title: "Images:"},
	{Key: "store", Title: "Store:"},
	{Key: "encoder", Title: "Encoders:"},
	{Key: "prefill", Title: "Prefill worker:"},
	{Key: "decode", Title: "Decode worker:"},
	{Key: "process", Title: "Process:"},
}

const description = `Afterimage serves vision-language models and encodes every image once per fleet.

Start with: afterimage up`

// usageError marks an error as one of the command line or the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// toldError marks an error that the user hears of from another process.
type toldError struct{ error }

func (e toldError) Unwrap() error { return e.error }

// exited carries the status of a flag that ends the program, such as --help, out of the parser.
type exited int

// Main runs the program until it ends or ctx does, and returns its exit status.
func (p Program) Main(ctx context.Context) (status int) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case exited:
			status = int(v)
		default:
			panic(v)
		}
	}()
	if len(p.Args) > 0 && p.Args[0] == complete.Word {
		return p.complete(p.Args[1:])
	}
	parser := p.parser()
	args := p.Args
	if len(args) == 0 {
		args = []string{"--help"}
	}
	kctx, err := parser.Parse(joinNegatives(args))
	if err != nil {
		return p.fail(usageError{worded(err)}, commandOf(err))
	}
	err = kctx.Run(&app{Program: p, ctx: ctx, kong: kctx})
	return p.fail(err, kctx.Command())
}

// joinNegatives turns "--flag -1" into "--flag=-1": a negative number is a value, to be refused by the
// flag that it was given to, and not a flag of its own.
func joinNegatives(args []string) []string {
	var out []string
	for i, arg := range args {
		number := len(arg) > 1 && arg[0] == '-' && arg[1] >= '0' && arg[1] <= '9'
		if number && i > 0 && strings.HasPrefix(args[i-1], "--") && len(args[i-1]) > 2 && !strings.Contains(args[i-1], "=") {
			out[len(out)-1] += "=" + arg
			continue
		}
		out = append(out, arg)
	}
	return out
}

// name returns what the user types to call the program.
func (p Program) name() string { return cmp.Or(p.Name, "afterimage") }

// parser returns a parser of the command line.
func (p Program) parser() *kong.Kong {
	parser, err := kong.New(&grammar{}, append(flagValues(), kong.Name("afterimage"), kong.Description(description),
		kong.Writers(p.Stdout, p.Stderr), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.Vars{"version": "afterimage " + version}, kong.ExplicitGroups(groups), kong.ValueFormatter(flagHelp), kong.Help(printHelp),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}))...)
	if err != nil {
		panic("BUG: the grammar is broken: " + err.Error())
	}
	hide(parser)
	return parser
}

// fail reports err and returns the exit status that goes with it.
func (p Program) fail(err error, command string) int {
	if err == nil {
		return exitOK
	}
	if _, told := errors.AsType[toldError](err); told {
		return exitFailure
	}
	fmt.Fprintf(p.Stderr, "afterimage: error: %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	if _, ok := errors.AsType[usageError](err); !ok {
		return exitFailure
	}
	// Arguments are part of kong's command path; a command to type has none.
	words := []string{"afterimage"}
	for _, w := range strings.Fields(command) {
		if !strings.HasPrefix(w, "<") {
			words = append(words, w)
		}
	}
	fmt.Fprintf(p.Stderr, "Run '%s --help' for all flags and their meaning.\n", strings.Join(words, " "))
	return exitUsage
}

// commandOf returns the command that err was met in, "" if none was named yet. A word too many after a group
// with a default command was meant as one of the group's commands, which the help of the group lists.
func commandOf(err error) string {
	perr, ok := errors.AsType[*kong.ParseError](err)
	if !ok || perr.Context == nil {
		return ""
	}
	command := perr.Context.Command()
	n := perr.Context.Selected()
	if n != nil && n.Parent != nil && n.Parent.DefaultCmd == n && strings.HasPrefix(err.Error(), "unexpected argument") {
		command, _ = strings.CutSuffix(command, " "+n.Name)
	}
	return command
}

// app is what commands run in.
type app struct {
	Program
	ctx  context.Context
	kong *kong.Context
}
