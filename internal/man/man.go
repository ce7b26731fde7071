// SPDX-License-Identifier: Apache-2.0

// Package man writes manual pages from a grammar: one for the program and one for each of its commands, with
// what their help shows. It does no I/O but to the writer that it is given.
package man

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Example is a command line, and what it does.
type Example struct{ Does, Line string }

// Status is an exit status, and when a command ends with it.
type Status struct {
	Code  int
	Means string
}

// Book is what pages need besides the grammar.
type Book struct {
	Version  string
	Examples func(command string) []Example // of a command by its path without the program's name; "" is the program
	Statuses func(command string) []Status
	Help     func(*kong.Value) string // of a flag or an argument
}

// Name returns the name of the page of a command: afterimage-store-ls.
func Name(n *kong.Node) string { return strings.Join(path(n), "-") }

// Command returns the path of a command without the program's name: "store ls".
func Command(n *kong.Node) string { return strings.Join(path(n)[1:], " ") }

func path(n *kong.Node) []string {
	if n.Parent == nil {
		return []string{n.Name}
	}
	return append(path(n.Parent), n.Name)
}

// Pages returns the nodes that have a page: the program and every command that is shown to people.
func Pages(app *kong.Application) []*kong.Node {
	var out []*kong.Node
	var walk func(*kong.Node)
	walk = func(n *kong.Node) {
		if !n.Hidden {
			out = append(out, n)
			for _, c := range n.Children {
				walk(c)
			}
		}
	}
	walk(app.Node)
	return out
}

// Write writes the page of n in section 1.
func (b Book) Write(w io.Writer, n *kong.Node) error {
	p := &page{help: b.Help}
	p.f(".TH %s 1 \"\" \"%s\" \"Afterimage\"", quote(strings.ToUpper(Name(n))), b.Version)
	p.head("NAME")
	p.text(Name(n) + " \\- " + escape(firstLine(n.Help)))
	p.head("SYNOPSIS")
	p.f(".B %s", escape(strings.Join(path(n), " ")))
	p.text(escape(synopsis(n)))
	p.head("DESCRIPTION")
	p.paragraphs(n.Help)
	p.paragraphs(n.Detail)
	p.arguments(n)
	p.flags(n)
	p.commands(n)
	p.examples(b.Examples(Command(n)))
	p.statuses(b.Statuses(Command(n)))
	p.head("SEE ALSO")
	p.text(escape(strings.Join(near(n), ", ")))
	_, err := io.WriteString(w, p.String())
	return err
}

// near are the pages beside one.
func near(n *kong.Node) []string {
	var out []string
	if n.Parent != nil {
		out = append(out, Name(n.Parent)+"(1)")
	}
	for _, c := range n.Children {
		if !c.Hidden {
			out = append(out, Name(c)+"(1)")
		}
	}
	return out
}

// synopsis is what stands behind the command.
func synopsis(n *kong.Node) string {
	parts := []string{"[flags]"}
	if len(n.Children) > 0 {
		parts = append(parts, "[command]")
	}
	for _, a := range n.Positional {
		name := cmp.Or(a.Tag.PlaceHolder, strings.ToUpper(a.Name))
		if !a.Required {
			name = "[" + name + "]"
		}
		if a.IsCumulative() {
			name += "..."
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, " ")
}

// page collects the lines of one page.
type page struct {
	strings.Builder
	help func(*kong.Value) string
}

func (p *page) f(format string, args ...any) { fmt.Fprintf(&p.Builder, format+"\n", args...) }
func (p *page) head(title string)            { p.f(".SH %s", title) }

// text writes lines that hold no markup of ours; a line must not begin like a request.
func (p *page) text(s string) {
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	p.f("%s", s)
}

func (p *page) paragraphs(s string) {
	for part := range strings.SplitSeq(s, "\n\n") {
		if part = strings.Join(strings.Fields(part), " "); part != "" {
			p.f(".PP")
			p.text(escape(part))
		}
	}
}

func (p *page) arguments(n *kong.Node) {
	if len(n.Positional) == 0 {
		return
	}
	p.head("ARGUMENTS")
	for _, a := range n.Positional {
		p.item(cmp.Or(a.Tag.PlaceHolder, strings.ToUpper(a.Name)), p.help(a))
	}
}

// flags writes those of the command under the headings of its help.
func (p *page) flags(n *kong.Node) {
	groups := map[string][]*kong.Flag{}
	var order []string
	for _, f := range slices.Concat(n.AllFlags(true)...) {
		title := "Flags:"
		if f.Group != nil {
			title = f.Group.Title
		}
		if groups[title] == nil {
			order = append(order, title)
		}
		groups[title] = append(groups[title], f)
	}
	p.head("OPTIONS")
	for _, title := range order {
		p.f(".SS %s", quote(strings.TrimSuffix(title, ":")))
		for _, f := range groups[title] {
			p.item(flagName(f), p.help(f.Value))
		}
	}
}

func flagName(f *kong.Flag) string {
	name := "--" + f.Name
	if f.Tag.Negatable != "" {
		name = "--[no-]" + f.Name
	}
	if f.Short != 0 {
		name = "-" + string(f.Short) + ", " + name
	}
	if !f.IsBool() {
		name += "=" + cmp.Or(f.PlaceHolder, strings.ToUpper(f.Name))
	}
	return name
}

func (p *page) item(name, help string) {
	p.f(".TP\n.B %s", escape(name))
	p.text(escape(strings.Join(strings.Fields(help), " ")))
}

func (p *page) commands(n *kong.Node) {
	if len(n.Children) == 0 {
		return
	}
	p.head("COMMANDS")
	for _, c := range n.Children {
		if !c.Hidden {
			p.item(Command(c), c.Help)
		}
	}
}

func (p *page) examples(all []Example) {
	if len(all) == 0 {
		return
	}
	p.head("EXAMPLES")
	for _, e := range all {
		p.f(".PP")
		p.text(escape(e.Does) + ":")
		p.f(".PP\n.nf\n.RS")
		p.text(escape(e.Line))
		p.f(".RE\n.fi")
	}
}

func (p *page) statuses(all []Status) {
	if len(all) == 0 {
		return
	}
	p.head("EXIT STATUS")
	for _, s := range all {
		p.item(fmt.Sprint(s.Code), s.Means)
	}
}

func firstLine(s string) string { line, _, _ := strings.Cut(s, "\n"); return line }

func quote(s string) string { return `"` + escape(strings.ReplaceAll(s, `"`, "'")) + `"` }

// escape keeps roff from reading a text as markup; dashes stay such that can be copied.
func escape(s string) string { return strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s) }
