// SPDX-License-Identifier: Apache-2.0

// Package bench holds the shape of all benchmarks of the command line: rows of measured values next
// to a peer's and a target, printed as a table or as JSON, with an exit code that says whether the
// targets were met.
//
// A benchmark measures in one run whatever it compares, since timings of two runs do not compare. A
// value that could not be measured is a row that says so, never a row left out.
package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// Row is one measured value.
type Row struct {
	Case   string  `json:"case"`
	Metric string  `json:"metric"` // with its unit, e.g. "p50 ms"
	Value  float64 `json:"value"`
	// Peer names what Value is compared with; empty when the target is absolute.
	Peer      string   `json:"peer,omitempty"`
	PeerValue *float64 `json:"peer_value,omitempty"`
	Ratio     *float64 `json:"ratio,omitempty"` // Value / PeerValue
	// Target is the most that Ratio may be, or Value where there is no peer; 0 means that the row
	// only informs.
	Target float64 `json:"target,omitempty"`
	// Least is the least that Ratio may be, for rates and, beside Target, for what must be near; 0 in all other rows.
	Least float64 `json:"least,omitempty"`
	// OK says whether the target was met; nil when nothing was to be met or it was not measured.
	OK *bool `json:"ok,omitempty"`
	// NotMeasured says why there is no value, or no peer value where the target needs one.
	NotMeasured string `json:"not_measured,omitempty"`
}

// Absolute returns a row whose value must not exceed target.
func Absolute(name, metric string, value, target float64) Row {
	r := Row{Case: name, Metric: metric, Value: value, Target: target}
	if target > 0 {
		ok := value <= target
		r.OK = &ok
	}
	return r
}

// Against returns a row whose value must not exceed target times the peer's.
func Against(name, metric string, value float64, peer string, peerValue, target float64) Row {
	ratio := value / peerValue
	r := Row{Case: name, Metric: metric, Value: value, Peer: peer, PeerValue: &peerValue, Ratio: &ratio, Target: target}
	if target > 0 {
		ok := ratio <= target
		r.OK = &ok
	}
	return r
}

// AtLeast returns a row whose value must be at least target times the peer's: for rates, where more is better.
func AtLeast(name, metric string, value float64, peer string, peerValue, target float64) Row {
	r := Against(name, metric, value, peer, peerValue, 0)
	r.Least = target
	if target > 0 {
		ok := *r.Ratio >= target
		r.OK = &ok
	}
	return r
}

// Within returns a row whose value must differ from the peer's by at most a share of it: for figures that foretell others.
func Within(name, metric string, value float64, peer string, peerValue, share float64) Row {
	r := Against(name, metric, value, peer, peerValue, 1+share)
	r.Least = 1 - share
	ok := *r.Ratio >= r.Least && *r.Ratio <= r.Target
	if peerValue == 0 { // there is no ratio
		ok = value == 0
		r.Ratio, r.Least, r.Target = nil, 0, 0
	}
	r.OK = &ok
	return r
}

// Missing returns a row that was to be checked and could not be measured.
func Missing(name, metric, why string) Row {
	return Row{Case: name, Metric: metric, NotMeasured: why}
}

// Report is the outcome of one benchmark.
type Report struct {
	Name string `json:"bench"`
	// Note says what is simulated or special about the run; empty when nothing is.
	Note string `json:"note,omitempty"`
	Rows []Row  `json:"rows"`
}

// load is how much of its target a row uses: above 1 is a miss.
func (r Row) load() float64 {
	switch {
	case r.Least > 0 && r.Target > 0:
		return max(r.Least / *r.Ratio, *r.Ratio/r.Target)
	case r.Least > 0:
		return r.Least / *r.Ratio
	case r.Target == 0 && r.OK != nil && *r.OK: // it must be 0, and is
		return 0
	case r.Target == 0:
		return math.Inf(1)
	}
	if r.Ratio != nil {
		return *r.Ratio / r.Target
	}
	return r.Value / r.Target
}

// counts returns how many rows had a target that was met, had a target, and were not measured; worst
// is the row that used most of its target.
func (r Report) counts() (met, checked, missing int, worst *Row) {
	for i := range r.Rows {
		row := &r.Rows[i]
		switch {
		case row.NotMeasured != "":
			missing++
			continue
		case row.OK == nil:
			continue
		case *row.OK:
			met++
		}
		checked++
		if load := row.load(); !math.IsNaN(load) && (worst == nil || load > worst.load()) {
			worst = row
		}
	}
	return
}

// Summary is the one line that ends every report.
func (r Report) Summary() string {
	met, checked, missing, worst := r.counts()
	s := fmt.Sprintf("bench %s: %d of %d met, %d not measured", r.Name, met, checked, missing)
	if worst != nil {
		s += fmt.Sprintf("; worst %s, %s: %.2fx of its target", worst.Case, worst.Metric, worst.load())
	}
	return s
}

// ExitCode is what --check exits with: 1 when a measured target was missed, 3 when none was missed but
// some could not be measured, else 0.
func (r Report) ExitCode() int {
	met, checked, missing, _ := r.counts()
	switch {
	case met < checked:
		return 1
	case missing > 0:
		return 3
	}
	return 0
}

// WriteJSON writes the report as one JSON document.
func (r Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Report
		Summary string `json:"summary"`
	}{r, r.Summary()})
}

// WriteTable writes the report for people, the summary last.
func (r Report) WriteTable(w io.Writer) error {
	if r.Note != "" {
		fmt.Fprintln(w, r.Note)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "case\tmetric\tvalue\tpeer\tpeer value\tratio\ttarget\tok")
	for _, row := range r.Rows {
		fmt.Fprintln(t, row.cells())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, r.Summary())
	return err
}

func (r Row) cells() string {
	if r.NotMeasured != "" {
		return fmt.Sprintf("%s\t%s\tnot measured\t%s\t\t\t\t%s", r.Case, r.Metric, r.Peer, r.NotMeasured)
	}
	num := func(v *float64, unit string) string {
		if v == nil {
			return ""
		}
		return fmt.Sprintf("%.4g%s", *v, unit)
	}
	target, ok := "", ""
	if r.Target > 0 {
		unit := ""
		if r.Ratio != nil {
			unit = "x"
		}
		target = "<= " + num(&r.Target, unit)
	}
	switch {
	case r.Least > 0 && r.Target > 0:
		target = num(&r.Least, "x") + " to " + num(&r.Target, "x")
	case r.Least > 0:
		target = ">= " + num(&r.Least, "x")
	case r.Target == 0 && r.OK != nil:
		target = "= 0"
	}
	if r.OK != nil {
		ok = map[bool]string{true: "yes", false: "NO"}[*r.OK]
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s",
		r.Case, r.Metric, num(&r.Value, ""), r.Peer, num(r.PeerValue, ""), num(r.Ratio, "x"), target, ok)
}

// Quantile returns the q-quantile of xs, which it sorts; 0.5 is the median. It returns NaN for none.
func Quantile(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	slices.Sort(xs)
	at := q * float64(len(xs)-1)
	i := int(at)
	if i+1 == len(xs) {
		return xs[i]
	}
	return xs[i] + (at-float64(i))*(xs[i+1]-xs[i])
}
