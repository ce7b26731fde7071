// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"afterimage/internal/config"
)

// configCmd holds the commands about the configuration.
type configCmd struct {
	Print printCmd `cmd:"" help:"Print every value of the configuration with its source."`
	Check checkCmd `cmd:"" help:"Read the configuration as a role does, and say what is wrong with it."`
}

// configFile names a configuration, as an argument or as roles have it.
type configFile struct {
	Arg  string `arg:"" name:"file" optional:"" placeholder:"FILE" help:"TOML file to read besides the environment; --config names it, too."`
	File string `name:"config" short:"c" placeholder:"FILE" env:"AFTERIMAGE_CONFIG" help:"The same. [$$AFTERIMAGE_CONFIG]"`
}

// AfterApply takes the file from where it is named.
func (f *configFile) AfterApply(a *kong.Context) error {
	for _, p := range a.Path {
		if p.Flag != nil && p.Flag.Name == "config" && f.Arg != "" && f.Arg != f.File {
			return fmt.Errorf("two files are named, %s and --config %s; name one", f.Arg, f.File)
		}
	}
	f.File = cmp.Or(f.Arg, f.File)
	return nil
}

// load reads the configuration, and tells of variables that nothing reads.
func (f *configFile) load(a *app) (*config.Loaded, error) {
	l, err := config.Load(config.Input{File: f.File, Env: a.Env})
	if err != nil {
		return nil, usageError{err}
	}
	a.warn(l)
	return l, nil
}

// printCmd shows a configuration.
type printCmd struct {
	configFile `embed:""`
	Changed    bool `help:"Leave out what has its default."`
	JSON       bool `help:"Print one JSON document: a list of key, value as text, and source."`
}

// Help is shown below the command's own line.
func (*printCmd) Help() string {
	return "What it prints is a file that roles read: values that were changed in the environment are in it, and each line says where its value comes from. " +
		"It checks nothing but that values can be read; 'afterimage config check' does."
}

// Run is called by the parser.
func (c *printCmd) Run(a *app) error {
	l, err := c.load(a)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(a.Stdout).Encode(l.Values(c.Changed))
	}
	return l.Show(a.Stdout, c.Changed)
}

// checkCmd checks a configuration.
type checkCmd struct {
	configFile `embed:""`
	Role       string `placeholder:"ROLE" enum:"up,store,encoder,prefill,decode,gateway" default:"up" help:"Role to check it for: up, store, encoder, prefill, decode or gateway (default ${default})."`
}

// Help is shown below the command's own line.
func (*checkCmd) Help() string {
	return "Every fault is named with its key, value, source and mend; nothing is started. 'afterimage doctor' looks at what the values name: files, ports, peers."
}

// Run is called by the parser.
func (c *checkCmd) Run(a *app) error {
	l, err := c.load(a)
	if err != nil {
		return err
	}
	if err := l.Validate(config.Role(c.Role)); err != nil {
		return usageError{err}
	}
	from := "the environment"
	if c.File != "" {
		from = strings.Join([]string{c.File, from}, " and ")
	}
	_, err = fmt.Fprintf(a.Stdout, "ok for %s: %s set %d of %d values\n", c.Role, from, len(l.Values(true)), len(l.Values(false)))
	return err
}
