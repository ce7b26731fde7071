// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"afterimage/internal/config"
)

// versionCmd prints the version.
type versionCmd struct{}

// Run is called by the parser.
func (versionCmd) Run(a *app) error {
	_, err := fmt.Fprintln(a.Stdout, "afterimage", version)
	return err
}

// configCmd holds the commands about the configuration.
type configCmd struct {
	Check checkCmd `cmd:"" help:"Read the configuration as the roles do, print every value with its source, and check it."`
}

// checkCmd shows and checks a configuration.
type checkCmd struct {
	File string `arg:"" optional:"" placeholder:"FILE" env:"AFTERIMAGE_CONFIG" help:"TOML file to read besides the environment."`
	Role string `placeholder:"ROLE" enum:"up,store,encoder,prefill,gateway" default:"up" help:"Role to check it for: up, store, encoder, prefill or gateway (default ${default})."`
}

// Run is called by the parser. It prints all values even if some of them are unusable.
func (c *checkCmd) Run(a *app) error {
	l, err := config.Load(config.Input{File: c.File, Env: a.Env})
	if err != nil {
		return usageError{err}
	}
	a.warn(l)
	if err := l.Show(a.Stdout); err != nil {
		return err
	}
	if err := l.Validate(config.Role(c.Role)); err != nil {
		return usageError{err}
	}
	return nil
}
