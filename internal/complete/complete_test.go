// SPDX-License-Identifier: Apache-2.0

package complete

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// tool is a command line with everything that is completed.
type tool struct {
	Store struct {
		Serve struct {
			Bytes string `placeholder:"SIZE" help:"Memory."`
		} `cmd:"" default:"withargs" help:"Run the Store."`
		Ls struct {
			Prefix string `arg:"" optional:"" placeholder:"PREFIX"`
			JSON   bool   `short:"j" help:"Print JSON. It is long."`
		} `cmd:"" help:"List objects."`
	} `cmd:"" help:"The Store."`
	Ask struct {
		Image []string `short:"i" placeholder:"FILE"`
		Kind  string   `enum:"ram,none" default:"ram"`
		Mode  string   `key:"delivery.mode"`
		Trace bool     `negatable:""`
		Quiet bool     `hidden:""`
		Text  string   `arg:"" optional:""`
	} `cmd:"" help:"Ask."`
	Out struct {
		Shell string `arg:"" enum:"bash,zsh"`
		Dir   string `arg:"" optional:"" placeholder:"DIR"`
	} `cmd:""`
	Secret struct{} `cmd:"" hidden:""`
}

func TestComplete(t *testing.T) {
	parser, err := kong.New(&tool{}, kong.Name("tool"))
	if err != nil {
		t.Fatal(err)
	}
	choices := func(v *kong.Value) []string {
		if v.Tag.Get("key") == "delivery.mode" {
			return []string{"direct", "p2p"}
		}
		return nil
	}
	f := func(line, want string) {
		t.Helper()
		a := Complete(parser.Model, strings.Split(line, " "), choices)
		var got []string
		for _, c := range a.Candidates {
			got = append(got, c.Word)
		}
		if s := strings.Join(append(got, ":"+string(a.Files)), " "); s != want {
			t.Errorf("%q: got %s, want %s", line, s, want)
		}
	}
	f("", "store ask out :none")
	f("s", "store :none")
	f("secr", ":none")
	f("store ", "serve ls :none")
	f("store --b", "--bytes :none") // of the command that needs no word
	f("store ls --", "--help --json :none")
	f("store ls x l", ":none")
	f("ask --im", "--image :none")
	f("ask --image ", ":file")
	f("ask -i ", ":file")
	f("ask --image=", ":file")
	f("ask --image a.png --k", "--kind :none")
	f("ask --kind ", "ram none :none")
	f("ask --kind=r", "--kind=ram :none")
	f("ask --mode p", "p2p :none")
	f("ask --tr", "--trace :none")
	f("ask --no-", "--no-trace :none")
	f("ask --q", ":none")
	f("ask --trace --ki", "--kind :none") // a switch takes no value
	f("ask --nonsense=x", ":none")
	f("ask -- --k", ":none")
	f("out ", "bash zsh :none")
	f("out bash ", ":dir")
	f("nonsense ", ":none")
}

func TestHelpIsOneLine(t *testing.T) {
	parser, err := kong.New(&tool{}, kong.Name("tool"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := Complete(parser.Model, []string{"store", "ls", "--js"}, nil).Write(&b); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "--json\tPrint JSON.\n:none\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestScripts(t *testing.T) {
	for _, shell := range Shells {
		text, err := Script(shell)
		if err != nil || !strings.Contains(text, Word) || !strings.Contains(text, "afterimage") {
			t.Errorf("%s: %v", shell, err)
		}
	}
	if _, err := Script("tcsh"); err == nil || !strings.Contains(err.Error(), "bash, zsh, fish") {
		t.Errorf("got %v, want the shells that there are", err)
	}
}
