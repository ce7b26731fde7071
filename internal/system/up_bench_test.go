// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/bench"
	"afterimage/internal/sim"
)

// TestBenchReassignment runs the experiment on real processes, small and fast: what one Encoder has, the other
// takes from the Store and never encodes.
func TestBenchReassignment(t *testing.T) {
	dir := t.TempDir()
	out, errs, _ := run(t, "bench", "reassignment", "--scale", "200", "--requests", "3", "--only", "M6,EL,ES,direct", "--report", dir, "--json")
	var rep bench.Report
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, errs)
	}
	want := map[string]float64{
		"M6 re-encoded, images": 12, "EL re-encoded, images": 12, "ES re-encoded, images": 0, "direct re-encoded, images": 0,
		"ES seeding published, images": 12, "ES images store": 12, "ES not answered, requests": 0,
	}
	for _, row := range rep.Rows {
		if v, ok := want[row.Case+" "+row.Metric]; ok {
			delete(want, row.Case+" "+row.Metric)
			if row.Value != v || row.NotMeasured != "" {
				t.Errorf("%s %s: %v %s, want %v", row.Case, row.Metric, row.Value, row.NotMeasured, v)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("no rows for %v", want)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil || !strings.Contains(string(page), "with it 0.") {
		t.Errorf("the page: %v", err)
	}
}

// TestBenchInterrupted ends the experiment half way: what was measured until then is in the report.
func TestBenchInterrupted(t *testing.T) {
	dir := t.TempDir()
	cmd := command(t, "bench", "reassignment", "--scale", "100", "--requests", "1000", "--only", "M6", "--report", dir)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "M6: 1000 requests") {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted run ended well")
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil || !strings.Contains(string(page), "The run is not complete: told to stop by a signal") {
		t.Errorf("the page: %v", err)
	}
}

// TestBenchWorkloads runs cells of the table with and without the Store. Routing alone saves what some Encoder in
// service holds, whoever it is; the Store saves all.
func TestBenchWorkloads(t *testing.T) {
	out, errs, status := run(t, "bench", "reassignment", "--workload", "encoder-loss,reassign,replace", "--policy", "affinity,both", "--scale", "200", "--requests", "6", "--json", "--check")
	var rep bench.Report
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, errs)
	}
	lost := map[string]bool{"encoder-loss, affinity": true, "replace, affinity": true}
	for _, row := range rep.Rows {
		if row.Metric == "re-encoded, images" && (row.Value > 0) != lost[row.Case] {
			t.Errorf("%s: %v re-encoded", row.Case, row.Value)
		}
	}
	if status != 0 || len(rep.Rows) != 42 {
		t.Errorf("status %d, %d rows: %s", status, len(rep.Rows), errs)
	}
}

// TestBenchSimulate holds a foretold traffic against a measured one, with a Store: counts do not hang on the machine.
func TestBenchSimulate(t *testing.T) {
	out, errs, _ := run(t, "bench", "simulate", "--policy", "store,none", "--scale", "60", "--requests", "20", "--json")
	var rep bench.Report
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, errs)
	}
	seen := map[string]float64{}
	for _, row := range rep.Rows {
		seen[row.Case] += row.Value
		if strings.HasPrefix(row.Metric, "reused") && (row.PeerValue == nil || math.Abs(row.Value-*row.PeerValue) > 8) {
			t.Errorf("%s, %s: %v foretold, measured %v of 80", row.Case, row.Metric, row.Value, row.PeerValue)
		}
	}
	if seen["store"] == 0 || seen["none"] == 0 || len(seen) != 2 {
		t.Errorf("rows of %v", seen)
	}
}

// TestSimulationMatchesServe loads a fleet, then takes what was sent through the modelled one: as many images come
// from each tier, within a tenth.
func TestSimulationMatchesServe(t *testing.T) {
	u := startUp(t, "--engine", "device", "--device", "encode=2ms,decode=1ms,rows=16,answer=2", "--delivery", "p2p", "--prefill-resident-bytes", "0")
	dir := t.TempDir()
	sent := filepath.Join(dir, "sent.csv")
	out, errs, status := run(t, "bench", "serve", "--url", u.url, "--requests", "150", "--rate", "100", "--concurrent", "1", "--images", "1:0.5,3:0.5",
		"--popularity", "zipf:0.8:150", "--size", "32", "--text-tokens", "20", "--output-tokens", "2", "--record", sent, "--out", filepath.Join(dir, "r.json"), "--html", filepath.Join(dir, "r.html"))
	if status != 0 {
		t.Fatalf("%s\n%s", out, errs)
	}
	r, err := bench.ReadResult(filepath.Join(dir, "r.json"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(sent)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	trace, err := sim.Read(f, sim.Native, sim.DefaultSizes())
	if err != nil {
		t.Fatal(err)
	}
	m := sim.DefaultModel()
	m.Encode, m.CacheBytes, m.Prefills = 2*time.Millisecond, 8<<20, 1
	o, err := sim.Run(t.Context(), trace, m, sim.Policies(24 << 20)[3])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		source string
		sim    int
	}{{"encoded", o.Encoded}, {"local", o.Local + o.Joined}, {"store", o.Store}} {
		if got := r.Sources[c.source]; math.Abs(float64(got-c.sim)) > 0.1*float64(o.Items) {
			t.Errorf("%s: %d in the fleet, %d in the simulation, of %d", c.source, got, c.sim, o.Items)
		}
	}
	if got := r.Sources["encoded"]; math.Abs(float64(got-o.Encoded)) > 0.1*float64(o.Encoded) {
		t.Errorf("encoded: %d in the fleet, %d in the simulation", got, o.Encoded)
	}
}
