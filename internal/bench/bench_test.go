// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

func TestExitCode(t *testing.T) {
	f := func(want int, rows ...Row) {
		t.Helper()
		if got := (Report{Name: "x", Rows: rows}).ExitCode(); got != want {
			t.Errorf("exit code %d, want %d", got, want)
		}
	}
	met, missed := Absolute("a", "ms", 1, 2), Absolute("b", "ms", 3, 2)
	f(0)
	f(0, met)
	f(1, met, missed)
	f(3, met, Missing("c", "ms", "no peer"))
	f(1, missed, Missing("c", "ms", "no peer")) // a miss outweighs what was not measured
	f(0, Absolute("only informs", "ms", 9, 0))
	f(0, Against("a", "ms", 1, "peer", 10, 0.1))
	f(1, Against("a", "ms", 1.01, "peer", 10, 0.1))
}

func TestSummaryNamesTheWorst(t *testing.T) {
	r := Report{Name: "resolver", Rows: []Row{
		Absolute("small", "ms", 1, 2),
		Against("4x30MiB", "ms", 93, "python", 100, 1),
		Missing("valkey", "ms", "not installed"),
	}}
	want := "bench resolver: 2 of 2 met, 1 not measured; worst 4x30MiB, ms: 0.93x of its target"
	if got := r.Summary(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestOutputs(t *testing.T) {
	r := Report{Name: "smoke", Note: "modelled device", Rows: []Row{
		Against("hit", "p50 ms", 1, "fresh encode", 20, 0.1), Missing("x", "ms", "no reason")}}
	var table, doc bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(table.String()), "\n")
	if lines[0] != "modelled device" || lines[len(lines)-1] != r.Summary() {
		t.Errorf("table:\n%s", table.String())
	}
	if !strings.Contains(table.String(), "not measured") || !strings.Contains(table.String(), "0.05x") {
		t.Errorf("table lacks the ratio or what was not measured:\n%s", table.String())
	}
	if err := r.WriteJSON(&doc); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Bench, Summary string
		Rows           []Row
	}
	if err := json.Unmarshal(doc.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Bench != "smoke" || back.Summary != r.Summary() || len(back.Rows) != 2 || *back.Rows[0].Ratio != 0.05 {
		t.Errorf("json: %s", doc.String())
	}
}

func TestQuantile(t *testing.T) {
	if got := Quantile([]float64{4, 1, 3, 2}, 0.5); got != 2.5 {
		t.Errorf("median %v, want 2.5", got)
	}
	if got := Quantile([]float64{7}, 0.9); got != 7 {
		t.Errorf("one value: %v", got)
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		value, peer float64
		ok          bool
	}{{100, 100, true}, {91, 100, true}, {109, 100, true}, {89, 100, false}, {111, 100, false}, {0, 0, true}, {0, 5, false}, {5, 0, false}} {
		r := Within("case", "metric", c.value, "peer", c.peer, 0.1)
		if *r.OK != c.ok {
			t.Errorf("%v against %v: %v", c.value, c.peer, *r.OK)
		}
		rep := Report{Name: "x", Rows: []Row{r}}
		if err := rep.WriteJSON(io.Discard); err != nil {
			t.Errorf("%v against %v: %v", c.value, c.peer, err)
		}
		if got := r.cells(); c.peer > 0 && !strings.Contains(got, "0.9x to 1.1x") {
			t.Errorf("%q", got)
		}
	}
}
