// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A fleet that was told of no decode workers shows none that are missing, and one that was does.
func TestWorkersOfRoles(t *testing.T) {
	roles := func(decodes ...string) (out []string) {
		f := newFleet(Config{Encoders: []string{"http://e"}, Prefills: []string{"http://p"}, Decodes: decodes}, nil)
		reg := prometheus.NewRegistry()
		reg.MustRegister(workersCollector{f})
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range families[1].GetMetric() { // after those of what Encoders hold
			out = append(out, m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue())
		}
		slices.Sort(out)
		return out
	}
	two := []string{"encoder down", "encoder up", "prefill down", "prefill up"}
	if got := roles(); !slices.Equal(got, two) {
		t.Errorf("got %q, want %q", got, two)
	}
	if got, want := roles("http://d"), append([]string{"decode down", "decode up"}, two...); !slices.Equal(got, want) {
		t.Errorf("with decode workers: got %q, want %q", got, want)
	}
}
