// SPDX-License-Identifier: Apache-2.0

// Package complete says how a command line that is being typed can go on.
//
// The shells' own part is a few lines that hand over the words up to the cursor (Script); what fits is worked out
// here, from the grammar that also parses the finished line, so that no flag is ever missing. Complete is a pure
// function: it opens no file and starts nothing. Where a file belongs it says so, and the shell, which knows the
// user's folder and quoting, lists files itself.
package complete

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Candidate is one way to go on: a whole word.
type Candidate struct {
	Word string
	Help string // one line, "" if there is nothing to say
}

// Files says which files the shell may offer besides.
type Files string

// The kinds of Files.
const (
	NoFiles  Files = "none"
	AnyFiles Files = "file"
	Folders  Files = "dir"
)

// Answer is what may stand in the place of the last word.
type Answer struct {
	Candidates []Candidate
	Files      Files
}

// Choices returns the words that a flag takes, nil where any will do; those that the grammar lists need none.
type Choices func(*kong.Value) []string

// Complete returns what may stand in the place of the last of words, which are those behind the program's name up
// to the cursor; the last may be empty.
func Complete(app *kong.Application, words []string, choices Choices) Answer {
	if len(words) == 0 {
		words = []string{""}
	}
	l := line{node: app.Node, choices: choices}
	last := len(words) - 1
	for _, w := range words[:last] {
		l.take(w)
	}
	return l.finish(words[last])
}

// line is a command line as far as it was read.
type line struct {
	node       *kong.Node
	positional int
	pending    *kong.Flag // waits for its value
	ended      bool       // by --: no flags any more
	choices    Choices
}

// take reads a whole word.
func (l *line) take(word string) {
	switch {
	case l.pending != nil:
		l.pending = nil
	case l.ended:
		l.positional++
	case word == "--":
		l.ended = true
	case strings.HasPrefix(word, "-") && word != "-":
		if f := l.flag(word); f != nil && !f.IsBool() && !f.IsCounter() && !strings.Contains(word, "=") {
			l.pending = f
		}
	default:
		if child := l.child(word); child != nil && l.positional == 0 {
			l.node = child
			return
		}
		l.positional++
	}
}

// child finds a command below the one that was read.
func (l *line) child(name string) *kong.Node {
	for _, c := range l.node.Children {
		if c.Name == name || slices.Contains(c.Aliases, name) {
			return c
		}
	}
	return nil
}

// command is the command that flags and arguments belong to: a default one needs no word.
func (l *line) command() *kong.Node {
	if l.node.DefaultCmd != nil {
		return l.node.DefaultCmd
	}
	return l.node
}

// flags are all that the command takes.
func (l *line) flags() []*kong.Flag {
	return slices.Concat(l.command().AllFlags(true)...)
}

// flag finds the flag of a word, with one dash or two.
func (l *line) flag(word string) *kong.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for _, f := range l.flags() {
		long := strings.HasPrefix(word, "--")
		if long && f.Name == name || !long && f.Short != 0 && strings.HasSuffix(name, string(f.Short)) {
			return f
		}
	}
	return nil
}

// finish completes the word at the cursor.
func (l *line) finish(word string) Answer {
	name, value, assigned := strings.Cut(word, "=")
	switch {
	case l.pending != nil:
		return l.value(l.pending.Value, word, "")
	case !l.ended && assigned && strings.HasPrefix(word, "--"):
		if f := l.flag(name); f != nil {
			return l.value(f.Value, value, name+"=")
		}
		return Answer{Files: NoFiles}
	case !l.ended && strings.HasPrefix(word, "-"):
		return l.flagNames(word)
	}
	a := Answer{Files: NoFiles}
	if l.positional == 0 {
		for _, c := range l.node.Children {
			if !c.Hidden && strings.HasPrefix(c.Name, word) {
				a.Candidates = append(a.Candidates, Candidate{c.Name, oneLine(c.Help)})
			}
		}
	}
	if args := l.command().Positional; len(args) > 0 {
		own := l.value(args[min(l.positional, len(args)-1)], word, "")
		a.Candidates, a.Files = append(a.Candidates, own.Candidates...), own.Files
	}
	return a
}

// flagNames are the flags that begin with word.
func (l *line) flagNames(word string) Answer {
	a := Answer{Files: NoFiles}
	for _, f := range l.flags() {
		names := []string{"--" + f.Name}
		if f.Tag.Negatable != "" {
			names = append(names, "--no-"+f.Name)
		}
		for _, n := range names {
			if strings.HasPrefix(n, word) {
				a.Candidates = append(a.Candidates, Candidate{n, oneLine(f.Help)})
			}
		}
	}
	return a
}

// fileMarks are the place holders that stand for files; those of folders follow.
var (
	fileMarks   = []string{"FILE", "SOCKET", "IMAGE", "OLD", "NEW", "NAME|FILE"}
	folderMarks = []string{"DIR"}
)

// value completes the value of a flag or an argument, with prefix in front.
func (l *line) value(v *kong.Value, word, prefix string) Answer {
	a := Answer{Files: NoFiles}
	words := strings.Split(v.Enum, ",")
	if v.Enum == "" && l.choices != nil {
		words = l.choices(v)
	}
	for _, w := range words {
		if w != "" && strings.HasPrefix(w, word) {
			a.Candidates = append(a.Candidates, Candidate{Word: prefix + w})
		}
	}
	mark := v.Tag.PlaceHolder
	switch {
	case slices.Contains(fileMarks, mark):
		a.Files = AnyFiles
	case slices.Contains(folderMarks, mark):
		a.Files = Folders
	}
	return a
}

// oneLine is the first sentence of a help.
func oneLine(help string) string {
	first, _, more := strings.Cut(strings.Join(strings.Fields(help), " "), ". ")
	if more {
		first += "."
	}
	return first
}
