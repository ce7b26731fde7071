// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"afterimage/internal/control"
	"afterimage/internal/load"
)

// TestRoutes checks what the experiment rests on: the same requests for all, Encoders exchanged, P/Ds kept.
func TestRoutes(t *testing.T) {
	a, b := newRoutes(7, 100, 4, 2, 0.5, 4), newRoutes(7, 100, 4, 2, 0.5, 4)
	s, m, turned := a.swapped(), a.monolithic(6), a.turned(4)
	for i := range a.at {
		if a.at[i] != b.at[i] || a.encoderHeader(i) != b.encoderHeader(i) || a.at[i] != s.at[i] || a.prefills[i] != s.prefills[i] {
			t.Fatalf("request %d differs between equal seeds, or moves when Encoders are exchanged", i)
		}
		for k := range a.encoders[i] {
			if a.encoders[i][k]+s.encoders[i][k] != 1 {
				t.Fatalf("request %d: image %d stays with its Encoder", i, k)
			}
		}
		if m.encoders[i][3] != i%6 || m.prefills[i] != i%6 || turned.prefills[i] == a.prefills[i] {
			t.Fatalf("request %d: monolithic %v on %d, turned to %d", i, m.encoders[i], m.prefills[i], turned.prefills[i])
		}
	}
	if got := a.split(); got < 0.4 || got > 0.6 {
		t.Errorf("a split of %v", got)
	}
	if h := a.anyEncoder().encoderHeader(0); h != "" {
		t.Errorf("routing is left alone, and %q is named", h)
	}
}

// made returns a phase of 10 requests with given times.
func made(name string, ttft, span, encodes float64) *Phase {
	p := &Phase{Name: name, Wall: ttft, Counters: counters{Encodes: encodes, Stored: 40}}
	for i := range 10 {
		p.Records = append(p.Records, load.Record{Index: i, DueMS: float64(i) * 100, TTFTMS: ttft, EndMS: ttft + 600, TPOTMS: 19.2,
			Trace: &control.Trace{Stages: []control.TraceStage{{Name: "media", MS: 1}, {Name: "prepare", MS: 2}, {Name: "delivered", MS: 1 + span}},
				Items: []control.TraceItem{{Source: control.SourceEncoded, Encoder: "encoder-0", MS: span}}}})
	}
	return p
}

func TestReassignmentReport(t *testing.T) {
	r := &Reassignment{Scale: 1, Images: 40, Sent: 10, Setup: [][2]string{{"a", "b"}}, Phases: map[string]*Phase{
		"M6": made("M6", 1180, 1, 40), "EL seeding": made("EL seeding", 1000, 300, 40), "EL": made("EL", 1200, 370, 40),
		"ES seeding": made("ES seeding", 1001, 300, 40), "ES": made("ES", 820, 5, 0), "ideal": made("ideal", 815, 1, 0),
	}}
	verdict := func(metric string) (ok *bool, found bool) {
		for _, row := range r.Report().Rows {
			if row.Case+" "+row.Metric == metric {
				return row.OK, true
			}
		}
		return nil, false
	}
	f := func(metric string, want bool) {
		t.Helper()
		if ok, found := verdict(metric); !found || ok == nil || *ok != want {
			t.Errorf("%s: found %v, ok %v, want %v", metric, found, ok, want)
		}
	}
	f("M6 residual of TTFT p50, %", true)
	f("EL residual of TTFT p90, %", false) // 1200 of 1656
	f("ES against EL re-encoded, images", true)
	f("ES against EL span p90, ms", true)
	f("ES against EL TTFT p50, part of the ceiling missed, %", true)
	f("no image known seeding wall clock, s", true)
	r.Phases["ES"] = made("ES", 900, 30, 1)
	f("ES against EL re-encoded, images", false)
	f("ES against EL span p90, ms", false)
	f("ES against EL TTFT p50, part of the ceiling missed, %", false)
	// Above scale 2 spans and seeding are shown only.
	r.Scale = 4
	if ok, found := verdict("ES against EL span p90, ms"); !found || ok != nil {
		t.Errorf("a span is checked at scale 4")
	}
	r.Phases["ideal"] = made("ideal", 2000, 1, 0)
	if ok, found := verdict("ES against EL TTFT p50, part of the ceiling missed, %"); !found || ok != nil || r.Report().ExitCode() == 0 {
		t.Error("a ceiling that is none was used")
	}
	r.Fault = errors.New("interrupted").Error()
	var page, file bytes.Buffer
	if err := errors.Join(r.Page().Write(&page), r.Write(&file)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"The run is not complete: interrupted", "Without a Store the Encoders encoded 40 of 40", "<svg"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestReassignRefuses(t *testing.T) {
	for name, change := range map[string]func(*Reassign){
		"requests": func(r *Reassign) { r.Requests = 0 }, "images": func(r *Reassign) { r.Images = 99 }, "rate": func(r *Reassign) { r.Rate = 0 },
		"scale": func(r *Reassign) { r.Scale = 0.5 }, "real scale": func(r *Reassign) { r.Scale, r.Model = 2, []string{"x"} },
		"configuration": func(r *Reassign) { r.Configurations = []string{"EX"} }, "text": func(r *Reassign) { r.TextTokens = 1 },
	} {
		r := DefaultReassign()
		change(&r)
		if out, err := r.Run(t.Context()); err == nil || out != nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestAll runs a shell in the place of the program: whatever it prints as a report goes into one table.
func TestAll(t *testing.T) {
	script := filepath.Join(t.TempDir(), "afterimage")
	const text = `#!/bin/sh
case "$2" in
good) echo '{"bench":"good","rows":[{"case":"a","metric":"ms","value":1,"target":2,"ok":true},{"case":"b","metric":"info","value":1}]}' ;;
bad) echo '{"bench":"bad","rows":[{"case":"a","metric":"ms","value":3,"target":2,"ok":false}]}'; exit 1 ;;
*) exit 2 ;;
esac
`
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	rep, err := All{Binary: script, Runs: []BenchRun{{Name: "good", Args: []string{"good"}}, {Name: "bad", Args: []string{"bad"}}, {Name: "broken", Args: []string{"broken"}}, {Name: "none", Missing: "not built"}}}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := rep.Summary(); !strings.HasPrefix(got, "bench all: 1 of 2 met, 2 not measured") || len(rep.Rows) != 4 {
		t.Errorf("%s in %+v", got, rep.Rows)
	}
}
