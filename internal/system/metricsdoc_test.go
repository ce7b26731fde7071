// SPDX-License-Identifier: Apache-2.0

package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/admit"
	"afterimage/internal/arena"
	"afterimage/internal/dashboard"
	"afterimage/internal/embedding"
	"afterimage/internal/quick"
	"afterimage/internal/store"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/tracing"
	"afterimage/internal/vllm"
	"afterimage/internal/vllm/relay"
)

// described takes a metric's description apart.
var described = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "(.*?)"(?:, unit: "[^"]*")?, constLabels: \{\}, variableLabels: \{(.*)\}\}$`)

// TestDocumentListsAllMetrics compares the table of series in docs/operations.md with what the roles of a
// fleet register. On failure, copy the rows that it prints.
func TestDocumentListsAllMetrics(t *testing.T) {
	const document = "../../docs/operations.md"
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Metrics\n")
	section, _, _ = strings.Cut(section, "\n##")
	var got []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| `afterimage_") {
			got = append(got, strings.TrimSuffix(line, "\n"))
		}
	}
	f := newFleet(t, threeWays)
	var cluster *mooncake.Client // which is not asked for values
	clustered := prometheus.NewRegistry()
	clustered.MustRegister(cluster.Collector())
	modelled := prometheus.NewRegistry()
	modelled.MustRegister(encoderEngine(t, 0).Collector())
	front, door := prometheus.NewRegistry(), prometheus.NewRegistry()
	admit.New(admit.Config{Registry: door})
	if _, err := vllm.New(vllm.Config{Metrics: front}); err != nil {
		t.Fatal(err)
	}
	relaying := relaySeries(t)
	page := prometheus.NewRegistry()
	dashboard.New(dashboard.Config{Registry: page})
	traced := prometheus.NewRegistry()
	tracing.New(tracing.Config{Registry: traced, Logger: quiet}).Close(t.Context())
	polled := prometheus.NewRegistry()
	polled.MustRegister(quick.NewPolicy(0))
	roles := map[string][]string{} // by row without its roles
	for _, r := range []struct {
		role string
		reg  *prometheus.Registry
	}{{"gateway", f.gateway.reg}, {"gateway", front}, {"gateway", door}, {"gateway", page}, {"encoder", f.encoders[0].reg}, {"encoder", clustered}, {"prefill", clustered}, {"encoder", modelled}, {"prefill", f.prefill.reg}, {"decode", f.decodes[0].reg}, {"decode", traced}, {"store", f.storeReg}, {"gateway", relaying}, {"gateway", clustered}, {"encoder", traced}, {"gateway", traced}, {"prefill", traced}, {"encoder", polled}, {"prefill", polled}} {
		for _, row := range seriesOf(t, r.reg) {
			if !slices.Contains(roles[row], r.role) {
				roles[row] = append(roles[row], r.role)
			}
		}
	}
	var want []string
	for row, by := range roles {
		want = append(want, fmt.Sprintf(row, strings.Join(by, ", ")))
	}
	slices.Sort(want)
	// Alerts and advice may name only what there is.
	for _, name := range regexp.MustCompile(`afterimage_[a-z0-9_]+`).FindAllString(string(text), -1) {
		if !slices.ContainsFunc(want, func(row string) bool { return strings.HasPrefix(row, "| `"+name+"`") }) {
			t.Errorf("%s names %s, which no role registers", document, name)
		}
	}
	if len(want) < 40 {
		t.Errorf("only %d series found", len(want))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s differs from what is registered (-want +got):\n%s\nThe rows are:\n%s", document, d, strings.Join(want, "\n"))
	}
}

// relaySeries is what a gateway has with relay.enabled.
func relaySeries(t *testing.T) *prometheus.Registry {
	t.Helper()
	a := must[*arena.Arena](t)(arena.New(arena.Config{Name: "series", Bytes: 1 << 20}))
	reg := prometheus.NewRegistry()
	r := must[*relay.Relay](t)(relay.New(relay.Config{
		Arena: a, State: filepath.Join(t.TempDir(), "relay.json"), Metrics: reg, Logger: quiet,
		Namespace: embedding.Namespace{Model: "m", Encoder: "e", DType: embedding.BFloat16, Protocol: embedding.V3},
	}))
	guard := must[*store.Guard](t)(store.NewGuard(store.GuardConfig{Store: &mooncake.Client{}}))
	reg.MustRegister(guard.Collectors()...)
	if err := errors.Join(r.Close(), a.Close()); err != nil {
		t.Error(err)
	}
	return reg
}

// seriesOf describes the project's series of a registry, each as a row with %s for the role.
func seriesOf(t *testing.T, reg *prometheus.Registry) []string {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() { defer close(descs); reg.Describe(descs) }()
	var rows []string
	for d := range descs {
		m := described.FindStringSubmatch(d.String())
		switch {
		case m == nil:
			t.Errorf("cannot read %s", d)
		case strings.HasPrefix(m[1], "afterimage_"):
			row := fmt.Sprintf("| `%s` | %%s | %s | %s |", m[1], labelsOf(m[3]), m[2])
			if !slices.Contains(rows, row) { // collectors may describe a series once per label value
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// labelsOf lists label names as the document does.
func labelsOf(names string) string {
	if names == "" {
		return "-"
	}
	return "`" + strings.ReplaceAll(names, ",", "`, `") + "`"
}
