// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Value is a value as text, and where it comes from.
type Value struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Values lists all values, or only those that somebody has set, as Key.Shown has them.
func (l *Loaded) Values(changed bool) []Value {
	out := []Value{}
	for _, k := range keys {
		if v := (Value{k.Name, k.Shown(&l.Config), l.Source(k.Name)}); !changed || v.Source != "default" {
			out = append(out, v)
		}
	}
	return out
}

// Attrs returns the values that somebody has set, each with its source, for a line of the log: all others have
// their defaults.
func (l *Loaded) Attrs() []slog.Attr {
	var out []slog.Attr
	for _, v := range l.Values(true) {
		out = append(out, slog.String(v.Key, v.Value+" ("+v.Source+")"))
	}
	return out
}

var (
	userOfURL  = regexp.MustCompile(`(://)[^/?#\s,]*@`)
	queryOfURL = regexp.MustCompile(`(://[^?\s,"]*)\?[^\s,"]*`)
)

// places takes the names, passwords and queries of URLs out of text.
func places(text string) string {
	return queryOfURL.ReplaceAllString(userOfURL.ReplaceAllString(text, "${1}"+hidden+"@"), "${1}?"+hidden)
}

// Show writes all values, or only those that somebody has set, each with its source behind it. What it writes is
// a file that Load reads. What Key.Shown hides is not in it: a value that is not whole is a comment.
func (l *Loaded) Show(w io.Writer, changed bool) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	table := ""
	for _, k := range keys {
		if changed && l.Source(k.Name) == "default" {
			continue
		}
		t, name, _ := strings.Cut(k.Name, ".")
		if t != table {
			if table != "" {
				fmt.Fprintln(tw)
			}
			table = t
			fmt.Fprintf(tw, "[%s]\n", t)
		}
		if shown := k.Shown(&l.Config); shown != k.Text(&l.Config) {
			if shown != hidden { // which has no line ends that would leave the comment
				shown = strconv.Quote(shown)
			}
			fmt.Fprintf(tw, "# %s = %s\t# %s\n", name, shown, l.Source(k.Name))
			continue
		}
		fmt.Fprintf(tw, "%s = %s\t# %s\n", name, literal(k.field(&l.Config)), l.Source(k.Name))
	}
	return tw.Flush()
}

// literal writes v in TOML.
func literal(v reflect.Value) string {
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err != nil {
			return strconv.Quote(err.Error())
		}
		return strconv.Quote(string(text))
	}
	switch v.Kind() {
	case reflect.String:
		return strconv.Quote(v.String())
	case reflect.Slice:
		var parts []string
		for _, e := range v.Seq2() {
			parts = append(parts, strconv.Quote(e.String()))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	default:
		return fmt.Sprint(v.Interface())
	}
}
