// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// liveMetrics are the families of each role of one `up`, which has answered an image twice and a text once.
type liveMetrics map[string]map[string]*dto.MetricFamily

// roleOf is the role of a process of up by its name.
func roleOf(process string) string { role, _, _ := strings.Cut(process, "-"); return role }

// measuredUp starts `up` and reads what its roles export.
func measuredUp(t *testing.T) liveMetrics {
	t.Helper()
	// Nobody takes the spans, which is nobody's trouble.
	u := startUp(t, "--engine", "device", "--device", "encode=1ms", "--otlp-endpoint", "http://127.0.0.1:1",
		"--decodes", "1", "--api-key", "key-of-the-test", "--max-text-requests", "8", "--max-image-requests", "8")
	u.client.Key = "key-of-the-test"
	for range 2 {
		u.mustAsk(t, "", picture(t, 32, 32, 1))
	}
	u.mustAsk(t, "")
	live := liveMetrics{}
	for name, address := range u.address {
		resp, err := u.client.HTTP.Get("http://" + address + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if live[roleOf(name)] == nil {
			live[roleOf(name)] = families
		}
	}
	return live
}

// documentedSeries reads the table of docs/operations.md: labels by series, by role.
func documentedSeries(t *testing.T) map[string]map[string][]string {
	t.Helper()
	out := map[string]map[string][]string{}
	for _, row := range operations(t, `(?m)^\| .(afterimage_[a-z0-9_]+). \| ([a-z, ]+) \| ([^|]+) \| [^|]+ \|$`) {
		labels := []string{}
		if row[3] != "-" {
			labels = strings.Split(strings.ReplaceAll(row[3], "`", ""), ", ")
		}
		for _, role := range strings.Split(row[2], ", ") {
			if out[role] == nil {
				out[role] = map[string][]string{}
			}
			out[role][row[1]] = labels
		}
	}
	return out
}

// operations finds all matches in docs/operations.md.
func operations(t *testing.T, pattern string) [][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
	if len(found) == 0 {
		t.Fatalf("docs/operations.md has nothing like %s", pattern)
	}
	return found
}

// elsewhere says that a role exports a series only with what this fleet has not: Mooncake, vLLM workers, or the relay
// before them, for which a gateway has memory and a Store.
func elsewhere(role, name string) bool {
	only := []string{"afterimage_mooncake_", "afterimage_vllm_", "afterimage_relay_"}
	if role == "gateway" {
		only = append(only, "afterimage_arena_", "afterimage_store_client_")
	}
	return slices.ContainsFunc(only, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// typeOf is the type that the name of a series promises.
func typeOf(name string) dto.MetricType {
	switch {
	case strings.HasSuffix(name, "_seconds"):
		return dto.MetricType_HISTOGRAM
	case strings.HasSuffix(name, "_total"):
		return dto.MetricType_COUNTER
	}
	return dto.MetricType_GAUGE
}

// TestMetricsAreAsDocumented holds the table of series against what the roles of a running fleet export, both ways,
// with types as names promise and each limit beside its use.
func TestMetricsAreAsDocumented(t *testing.T) {
	live, documented := measuredUp(t), documentedSeries(t)
	for role, families := range live {
		for name, f := range families {
			if !strings.HasPrefix(name, "afterimage_") {
				if !slices.ContainsFunc([]string{"go_", "process_", "promhttp_"}, func(p string) bool { return strings.HasPrefix(name, p) }) {
					t.Errorf("%s exports %s, a series of a kind that is not documented", role, name)
				}
				continue
			}
			want, ok := documented[role][name]
			if !ok {
				t.Errorf("%s exports %s, which docs/operations.md does not list for it", role, name)
				continue
			}
			if f.GetType() != typeOf(name) {
				t.Errorf("%s: %s is a %v, its name promises a %v", role, name, f.GetType(), typeOf(name))
			}
			if got := labelNames(f); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				t.Errorf("%s: %s has labels %q, documented are %q", role, name, got, want)
			}
		}
		for name := range documented[role] {
			if families[name] == nil && !elsewhere(role, name) {
				t.Errorf("docs/operations.md lists %s for %s, which does not export it", name, role)
			}
		}
	}
	limitsHold(t, live)
	t.Run("deploy", func(t *testing.T) { checkDeployed(t, live, documented) })
}

func labelNames(f *dto.MetricFamily) []string {
	names := []string{}
	for _, l := range f.GetMetric()[0].GetLabel() {
		names = append(names, l.GetName())
	}
	slices.Sort(names)
	return names
}

// limitsHold checks the table of limits: a role that exports a use exports its limit, and is within it.
func limitsHold(t *testing.T, live liveMetrics) {
	t.Helper()
	pairs := operations(t, "(?m)^\\| `([a-z_]+)` \\| `([a-z_]+)` \\| [^|]+ \\|$")
	if len(pairs) < 15 {
		t.Errorf("only %d limits are documented", len(pairs))
	}
	for _, p := range pairs {
		seen := elsewhere("", p[1])
		for role, families := range live {
			use, limit := families[p[1]], families[p[2]]
			switch {
			case (use == nil) != (limit == nil):
				t.Errorf("%s exports only one of %s and its limit %s", role, p[1], p[2])
			case use != nil:
				seen = true
				u, l := use.GetMetric()[0].GetGauge().GetValue(), limit.GetMetric()[0].GetGauge().GetValue()
				if u > l || l <= 0 {
					t.Errorf("%s: %s is %v, beyond its limit %v", role, p[1], u, l)
				}
			}
		}
		if !seen {
			t.Errorf("no role exports %s", p[1])
		}
	}
	// Every series that is a limit is in the table, so that no use is left without one.
	for role, families := range live {
		for name := range families {
			if strings.Contains(name, "_limit_") && !slices.ContainsFunc(pairs, func(p []string) bool { return p[2] == name }) {
				t.Errorf("%s exports the limit %s, which the table of limits does not show", role, name)
			}
		}
	}
}

// unionOf returns the families of all roles by name.
func unionOf(live liveMetrics) map[string]*dto.MetricFamily {
	all := map[string]*dto.MetricFamily{}
	for _, families := range live {
		for name, f := range families {
			if all[name] == nil {
				all[name] = &dto.MetricFamily{Name: f.Name, Type: f.Type}
			}
			all[name].Metric = append(all[name].Metric, f.Metric...)
		}
	}
	return all
}
