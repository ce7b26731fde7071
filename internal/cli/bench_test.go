// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"afterimage/internal/bench"
)

// The verdict is the exit status with --check only; the report is printed either way.
func TestBenchReport(t *testing.T) {
	missed := bench.Report{Name: "x", Rows: []bench.Row{bench.Absolute("a", "ms", 2, 1)}}
	unmeasured := bench.Report{Name: "x", Rows: []bench.Row{bench.Missing("a", "ms", "no peer")}}
	f := func(flags benchFlags, r bench.Report, status int, first string) {
		t.Helper()
		var out strings.Builder
		p := Program{Stdout: &out, Stderr: &out}
		got := func() (status int) {
			defer func() {
				if v, ok := recover().(exited); ok {
					status = int(v)
				}
			}()
			if err := flags.report(&app{Program: p, kong: &kong.Context{Kong: p.parser()}}, r); err != nil {
				t.Error(err)
			}
			return exitOK
		}()
		if got != status || !strings.HasPrefix(out.String(), first) {
			t.Errorf("%+v: status %d, want %d; output:\n%s", flags, got, status, out.String())
		}
	}
	f(benchFlags{}, missed, 0, "case ")
	f(benchFlags{Check: true}, missed, 1, "case ")
	f(benchFlags{Check: true}, unmeasured, 3, "case ")
	f(benchFlags{Check: true}, bench.Report{Name: "x"}, 0, "case ")
	f(benchFlags{JSON: true, Check: true}, missed, 1, "{\n")
}
