// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"

	"afterimage/internal/complete"
	"afterimage/internal/config"
	"afterimage/internal/man"
)

// completionCmd prints the script of a shell.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" placeholder:"SHELL" help:"bash, zsh or fish."`
}

// Run is called by the parser.
func (c *completionCmd) Run(a *app) error {
	text, err := complete.Script(c.Shell)
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.Stdout, text)
	return err
}

// complete answers a shell's script.
func (p Program) complete(words []string) int {
	answer := complete.Complete(p.parser().Model, words, choices)
	if answer.Write(p.Stdout) != nil {
		return exitFailure
	}
	return exitOK
}

// keyChoices are the words that values of the configuration take, where the grammar does not list them.
var keyChoices = map[string][]string{
	"engine.kind":            {config.EngineLlama, config.EngineDevice},
	"store.kind":             {config.StoreRAM, config.StoreMooncake, config.StoreNone},
	"delivery.mode":          {config.DeliveryDirect, config.DeliveryP2P},
	"encoder.protocol":       {config.ProtocolA1, config.ProtocolV3},
	"encoder.on_unconfirmed": {"drain", "exit"},
	"encoder.admission":      {"always", "second-sighting"},
	"log.level":              {"debug", "info", "warn", "error"},
	"log.format":             {"text", "json"},
}

func choices(v *kong.Value) []string { return keyChoices[v.Tag.Get("key")] }

// manCmd writes manual pages.
type manCmd struct {
	Out string `placeholder:"DIR" required:"" help:"Folder for the pages: afterimage.1 and one for each command."`
}

// Run is called by the parser.
func (c *manCmd) Run(a *app) error {
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return err
	}
	book := man.Book{Version: "afterimage " + version, Examples: examplesOf, Statuses: statusesOf, Help: flagHelp}
	for _, n := range man.Pages(a.parser().Model) {
		f, err := os.Create(filepath.Join(c.Out, man.Name(n)+".1"))
		if err != nil {
			return err
		}
		if err := book.Write(f, n); err != nil {
			f.Close()
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}
