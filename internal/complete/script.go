// SPDX-License-Identifier: Apache-2.0

package complete

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Word is the first argument with which a script calls the program: the words of the line follow.
const Word = "__complete"

// Shells are those that there is a script for.
var Shells = []string{"bash", "zsh", "fish"}

//go:embed scripts
var scripts embed.FS

// Script returns what a shell has to read once to complete the program.
func Script(shell string) (string, error) {
	if !slices.Contains(Shells, shell) {
		return "", fmt.Errorf("no completion for the shell %q; there is one for %s", shell, strings.Join(Shells, ", "))
	}
	text, err := scripts.ReadFile("scripts/afterimage." + shell)
	return string(text), err
}

// Write writes an answer as scripts read it: a candidate per line, its help behind a tab, and last what files
// the shell may offer, behind a colon.
func (a Answer) Write(w io.Writer) error {
	var b strings.Builder
	for _, c := range a.Candidates {
		b.WriteString(c.Word)
		if c.Help != "" {
			b.WriteString("\t" + c.Help)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, ":%s\n", a.Files)
	_, err := io.WriteString(w, b.String())
	return err
}
