// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"afterimage/internal/man"
)

// mends are how errors about a value say what to write instead.
var mends = []string{"; write ", "must be one of ", "bool value must be ", "; use "}

// Every flag of every command that takes no text says of a wrong value its own name, the value and the mend, and of a
// missing one what to write.
func TestEveryFlagNamesTheMend(t *testing.T) {
	parser := (Program{}).parser()
	tried := 0
	refuse := func(want []string, words ...string) {
		t.Helper()
		_, err := parser.Parse(words)
		if err == nil {
			t.Errorf("%q is taken", words)
			return
		}
		line := worded(err).Error()
		for _, text := range want {
			if !strings.Contains(line, text) {
				t.Errorf("%q: %q does not say %q", words, line, text)
			}
		}
		if !strings.HasSuffix(want[0], "no value") && !containsAny(line, mends) {
			t.Errorf("%q: %q names no mend", words, line)
		}
	}
	var walk func(n *kong.Node)
	walk = func(n *kong.Node) {
		for _, f := range n.Flags {
			at := strings.Fields(man.Command(n))
			if f.IsBool() {
				continue
			}
			refuse([]string{"--" + f.Name + " has no value", "write --" + f.Name + "="}, append(at, "--"+f.Name)...)
			if takesText(f) {
				continue
			}
			tried++
			refuse([]string{"--" + f.Name, `"x"`}, append(at, "--"+f.Name, "x")...)
		}
		for _, c := range n.Children {
			walk(c)
		}
	}
	walk(parser.Model.Node)
	if tried < 100 {
		t.Errorf("only %d flags take no text", tried)
	}
}

func containsAny(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}

// takesText says whether any text is a value of the flag, as far as the parser can tell.
func takesText(f *kong.Flag) bool {
	if _, ok := f.Target.Addr().Interface().(encoding.TextUnmarshaler); ok || f.Enum != "" {
		return false
	}
	kind := f.Target.Kind()
	return kind == reflect.String || kind == reflect.Slice && f.Target.Type().Elem().Kind() == reflect.String
}
