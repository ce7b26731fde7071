// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"afterimage/internal/config"
)

// flagValues has the parser read numbers and times as the environment is read: a value that is none is told with how
// to write one.
func flagValues() (options []kong.Option) {
	for _, kind := range []reflect.Kind{reflect.Int, reflect.Int32, reflect.Int64} {
		options = append(options, kong.KindMapper(kind, valueOf(wholeNumber)))
	}
	return append(options,
		kong.KindMapper(reflect.Uint64, valueOf(func(text string, target reflect.Value) error {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return fmt.Errorf("%q is no whole number that is at least 0; write one, e.g. 4", text)
			}
			target.SetUint(n)
			return nil
		})),
		kong.KindMapper(reflect.Float64, valueOf(func(text string, target reflect.Value) error {
			x, err := config.ParseFloat(text)
			target.SetFloat(x)
			return err
		})),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), valueOf(func(text string, target reflect.Value) error {
			var d config.Duration
			err := d.UnmarshalText([]byte(text))
			target.SetInt(int64(d))
			return err
		})))
}

// wholeNumber reads a whole number into an integer of any size.
func wholeNumber(text string, target reflect.Value) error {
	n, err := config.ParseInt(text)
	if err == nil && target.OverflowInt(int64(n)) {
		err = fmt.Errorf("%q is too large for anything here; write a number of at most 9 digits", text)
	}
	if err == nil {
		target.SetInt(int64(n))
	}
	return err
}

// valueOf takes the next word of the command line.
func valueOf(read func(text string, target reflect.Value) error) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		t, err := ctx.Scan.PopValue("one")
		if err != nil {
			return err
		}
		return read(strings.TrimSpace(fmt.Sprint(t.Value)), target)
	}
}

// lacking is how the parser says that a flag has no value.
var lacking = regexp.MustCompile(`^--([a-z0-9-]+): (?:expected \S+ value but got "(.*?)" \(|missing value, expecting )`)

// worded is err of the parser, with what to write after a flag that has no value.
func worded(err error) error {
	m := lacking.FindStringSubmatch(err.Error())
	perr, ok := errors.AsType[*kong.ParseError](err)
	if m == nil || !ok || perr.Context == nil {
		return err
	}
	what := "VALUE"
	for _, f := range perr.Context.Flags() {
		if f.Name == m[1] && f.PlaceHolder != "" {
			what = f.PlaceHolder
		}
	}
	before := ""
	if m[2] != "" && m[2] != "EOL" {
		before = fmt.Sprintf(" before %q", m[2])
	}
	return fmt.Errorf("--%s has no value%s; write --%s=%s, or leave the flag out", m[1], before, m[1], what)
}
