// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v2"
)

// deployed is an expression of a file in deploy/, and where it is.
type deployed struct{ at, expr string }

// alertRules reads the alert rules, of which nothing may be unknown.
func alertRules(t *testing.T) (names []string, exprs []deployed) {
	t.Helper()
	const file = "deploy/prometheus/afterimage.rules.yml"
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalStrict(text, &rules); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || r.Annotations["summary"] == "" || !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) {
				t.Errorf("%s: rule %q of group %q lacks a name, a summary or a severity", file, r.Alert, g.Name)
			}
			names = append(names, r.Alert)
			exprs = append(exprs, deployed{file + ": " + r.Alert, r.Expr})
		}
	}
	return names, exprs
}

// grafanaPanel is what of a panel concerns its data.
type grafanaPanel struct {
	Title       string
	Description string
	Type        string
	ID          int
	Panels      []grafanaPanel
	Targets     []struct{ Expr, LegendFormat string }
}

// grafanaTargets reads the expressions of the dashboard, with Grafana's variables filled in.
func grafanaTargets(t *testing.T) (out []deployed) {
	t.Helper()
	const file = "deploy/grafana/afterimage.json"
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	var board struct{ Panels []grafanaPanel }
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	ids := map[int]bool{}
	var walk func([]grafanaPanel)
	walk = func(panels []grafanaPanel) {
		for _, p := range panels {
			if ids[p.ID] || p.Title == "" || p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
				t.Errorf("%s: panel %d %q has an id of another, no title, no description or no data", file, p.ID, p.Title)
			}
			ids[p.ID] = true
			for _, x := range p.Targets {
				expr := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*").Replace(x.Expr)
				out = append(out, deployed{file + ": " + p.Title, expr})
			}
			walk(p.Panels)
		}
	}
	walk(board.Panels)
	return out
}

// added are labels that Prometheus adds to every series, and that of histograms.
var added = []string{"job", "instance", "le"}

// checkDeployed holds alert rules and dashboard against what a fleet exports: Prometheus' own parser takes every
// expression, and every series, label and label value in it exists.
func checkDeployed(t *testing.T, live liveMetrics, documented map[string]map[string][]string) {
	names, exprs := alertRules(t)
	board := grafanaTargets(t)
	if len(names) < 15 || len(board) < 40 {
		t.Errorf("found only %d alerts and %d targets of panels", len(names), len(board))
	}
	for _, e := range append(exprs, board...) {
		for _, fault := range exprFaults(e.expr, unionOf(live), documented) {
			t.Errorf("%s: %s: %s", e.at, e.expr, fault)
		}
	}
	var told []string
	for _, row := range operations(t, "(?m)^\\| `(Afterimage[A-Za-z]+)` \\|") {
		told = append(told, row[1])
	}
	if !slices.Equal(names, told) {
		t.Errorf("docs/operations.md explains the alerts %q, the rules are %q", told, names)
	}
}

// Alerts fire when they should and at no other time, as Prometheus' own evaluation of rules has it over series that are made
// up: of each alert there is a moment at which it fires, and one at which it does not.
func TestAlertsFire(t *testing.T) {
	promtool, env := tool(t, "promtool")
	const file = "deploy/prometheus/afterimage.rules.test.yml"
	for _, args := range [][]string{{"check", "rules", "deploy/prometheus/afterimage.rules.yml"}, {"test", "rules", file}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir, cmd.Env = root, env
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, said)
		}
	}
	var cases struct {
		Tests []struct {
			Rules []struct {
				Alert  string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal(must[[]byte](t)(os.ReadFile(filepath.Join(root, file))), &cases); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, c := range cases.Tests {
		for _, r := range c.Rules {
			if len(r.Alerts) > 0 {
				fires[r.Alert] = true
			} else {
				silent[r.Alert] = true
			}
		}
	}
	names, _ := alertRules(t)
	for _, name := range names {
		if !fires[name] || !silent[name] {
			t.Errorf("%s: %s has a moment at which it fires: %v, and one at which it does not: %v", file, name, fires[name], silent[name])
		}
	}
}

// A rule or a panel about what does not exist is found.
func TestExpressionsAreChecked(t *testing.T) {
	one := func(name, label, value string) map[string]*dto.MetricFamily {
		kind := typeOf(name)
		return map[string]*dto.MetricFamily{name: {Name: &name, Type: &kind, Metric: []*dto.Metric{{Label: []*dto.LabelPair{{Name: &label, Value: &value}}}}}}
	}
	f := func(expr, fault string) {
		t.Helper()
		got := strings.Join(exprFaults(expr, one("a_total", "source", "store"), nil), "; ")
		if fault == "" && got != "" || !strings.Contains(got, fault) {
			t.Errorf("%s: got %q, want %q", expr, got, fault)
		}
	}
	f(`sum by (source) (rate(a_total{source="store"}[5m]))`, "")
	f(`rate(a_total[5m]`, "unclosed")
	f(`rate(b_total[5m])`, "no role exports b_total")
	f(`a_total{origin="x"}`, "a_total has no label origin")
	f(`a_total{source="sto"}`, `is never "sto"`)
	f(`a_total{source=~"x.*"}`, `matches no value`)
	f(`sum by (origin) (a_total)`, "groups by origin")
}

// exprFaults says what is wrong with an expression.
func exprFaults(expr string, live map[string]*dto.MetricFamily, documented map[string]map[string][]string) (faults []string) {
	tree, err := parser.ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	known := slices.Clone(added) // labels of any series in the expression
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			found, more := selectorFaults(s, live, documented)
			faults, known = append(faults, more...), append(known, found...)
		}
		return nil
	})
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, by := range a.Grouping {
				if !slices.Contains(known, by) {
					faults = append(faults, "groups by "+by+", a label that no series in it has")
				}
			}
		}
		return nil
	})
	return faults
}

var ofHistogram = regexp.MustCompile(`_seconds_(bucket|sum|count)$`)

// selectorFaults checks one selector, and returns the labels of its series.
func selectorFaults(s *parser.VectorSelector, live map[string]*dto.MetricFamily, documented map[string]map[string][]string) (known, faults []string) {
	name := ofHistogram.ReplaceAllString(s.Name, "_seconds")
	family := live[name]
	if family == nil {
		for _, series := range documented {
			if labels, ok := series[name]; ok && elsewhere("", name) {
				return labels, nil
			}
		}
		return nil, []string{"no role exports " + name}
	}
	known = labelNames(family)
	for _, m := range s.LabelMatchers {
		switch {
		case m.Name == labels.MetricName || slices.Contains(added, m.Name):
		case !slices.Contains(known, m.Name):
			faults = append(faults, name+" has no label "+m.Name)
		case m.Name == "status": // every status is there once it was met
		default:
			if fault := matcherFault(m, family); fault != "" {
				faults = append(faults, name+": "+fault)
			}
		}
	}
	return known, faults
}

// matcherFault says that a matcher selects no value of its label.
func matcherFault(m *labels.Matcher, family *dto.MetricFamily) string {
	for _, metric := range family.GetMetric() {
		for _, l := range metric.GetLabel() {
			if l.GetName() == m.Name && (m.Matches(l.GetValue()) || m.Type == labels.MatchNotEqual && l.GetValue() == m.Value) {
				return ""
			}
		}
	}
	if m.Type == labels.MatchEqual || m.Type == labels.MatchNotEqual {
		return m.Name + " is never \"" + m.Value + "\""
	}
	return m.String() + " matches no value of " + m.Name
}
