// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/load"
)

// Reassignment is what a run of Reassign measured.
type Reassignment struct {
	Bench   string            `json:"bench"` // "reassignment"
	Machine string            `json:"machine"`
	Command string            `json:"command"`
	Started time.Time         `json:"started"`
	Setup   [][2]string       `json:"setup"`
	Scale   float64           `json:"scale"`
	Real    bool              `json:"real"` // a real model ran, no modelled device
	Load    float64           `json:"load"` // of the machine at the start, over a minute
	Phases  map[string]*Phase `json:"phases"`
	Fault   string            `json:"fault,omitempty"` // why it is not complete
	Images  int               `json:"images"`          // of all requests together
	Sent    int               `json:"requests"`
}

// Write writes the result, all requests included.
func (r *Reassignment) Write(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(r)
}

// setup lists what the run rests on; the free parameters of the calibration first.
func (r *Reassign) setup() [][2]string {
	t := newRoutes(r.Seed, r.Requests, r.Images, r.Rate, r.Split, r.prefills())
	s := [][2]string{
		{"requests", fmt.Sprintf("%d of %d images, %d text tokens, %d output tokens; open loop, memoryless, %v per second; seeding in a closed loop of 1, one output token",
			r.Requests, r.Images, r.TextTokens, r.OutputTokens, r.Rate)},
		{"free: trace seed", fmt.Sprint(r.Seed)},
		{"free: image split", fmt.Sprintf("each image to the first Encoder with %v; in this trace %.1f %%", r.Split, 100*t.split())},
	}
	if r.Model == nil {
		s = append(s,
			[2]string{"free: host time per image", r.Profile.Host.String()},
			[2]string{"free: link rate", "none: embeddings travel over the real loans and connections of this host"},
			[2]string{"free: prefill time", fmt.Sprintf("%v per position", r.Profile.Prefill)},
			[2]string{"modelled device", r.Profile.String()})
	} else {
		s = append(s, [2]string{"model", strings.Join(r.Model, " ")})
	}
	return append(s, [2]string{"routes", "forced: a request has the same Encoder for each image and the same P/D in EL and ES; the measurement exchanges the Encoders; nothing is kept at P/Ds but in 'resident'"})
}

// published holds the figures of the published experiment, by configuration and figure.
var published = map[string]map[string]float64{
	"M6": {"TTFT p50": 1173, "TTFT p90": 1197, "TPOT p50": 19.17, "TPOT p90": 54.53, "encoder time": 53.661, "re-encoded": 512},
	"EL": {"TTFT p50": 1209, "TTFT p90": 1656, "TPOT p50": 19.33, "TPOT p90": 41.54, "encoder time": 55.484, "re-encoded": 512,
		"span p50": 364.40, "span p90": 823.80},
	"ES": {"TTFT p50": 819, "TTFT p90": 891, "TPOT p50": 19.33, "TPOT p90": 41.39, "encoder time": 0, "re-encoded": 0,
		"span p50": 48.39, "span p90": 69.84},
	"EL seeding": {"wall": 129.71, "encoder time": 56.821},
	"ES seeding": {"wall": 130.01, "encoder time": 57.131},
}

// onCPU holds the figures of a real vLLM with split Encoders on two CPU cores, 12 requests of 4 images, without reuse
// and with it, in milliseconds.
var onCPU = map[string]map[string]float64{
	"EL": {"TTFT p50": 8190, "TTFT p90": 8700, "span p50": 6743, "span p90": 7374},
	"ES": {"TTFT p50": 1280, "TTFT p90": 1530, "span p50": 68.6, "span p90": 74.1},
}

// figure is one figure of a phase.
type figure struct {
	name, unit string
	value      float64
}

// figures lists what a phase measured.
func (p *Phase) figures() []figure {
	out := []figure{}
	if strings.HasSuffix(p.Name, "seeding") {
		out = append(out, figure{"wall", "s", p.Wall})
	}
	for _, f := range []struct {
		name string
		of   func(*load.Record) float64
	}{{"TTFT", ttftOf}, {"span", spanOf}, {"TPOT", tpotOf}} {
		if len(p.times(f.of)) == 0 || p.Name == "M6" && f.name == "span" {
			continue
		}
		for _, q := range []float64{0.5, 0.9, 0.99} {
			out = append(out, figure{fmt.Sprintf("%s p%g", f.name, q*100), "ms", p.quantile(f.of, q)})
		}
	}
	return append(out, figure{"re-encoded", "images", p.Counters.Encodes}, figure{"encoder time", "s", p.Counters.BusySeconds})
}

// phaseNames is the order in which phases are shown.
var phaseNames = []string{"M6", "EL seeding", "EL", "ES seeding", "ES", "ideal", "direct seeding", "direct", "resident"}

// calibrated says which figures the calibration is held to.
var calibrated = map[string][]string{"M6": {"TTFT p50", "TTFT p90"}, "EL": {"TTFT p50", "TTFT p90", "span p50", "span p90"}}

// maxResidual is how far a calibrated figure may be from the published one, in percent.
const maxResidual = 10

// maxCheckedScale is the scale up to which spans and seeding are checked: above, what is not modelled counts
// for too much in them.
const maxCheckedScale = 2

// Report turns the measurement into rows.
func (r *Reassignment) Report() Report {
	rep := Report{Name: "reassignment", Note: r.note()}
	for _, name := range phaseNames {
		p := r.Phases[name]
		if p == nil {
			continue
		}
		for _, f := range p.figures() {
			rep.Rows = append(rep.Rows, r.compared(name, f)...)
		}
		rep.Rows = append(rep.Rows, p.kept(r)...)
	}
	rep.Rows = append(rep.Rows, r.claims()...)
	if r.Fault != "" {
		rep.Rows = append(rep.Rows, Missing("the rest", "all", r.Fault))
	}
	for i, row := range rep.Rows {
		if !finite(row.Value) || row.Ratio != nil && !finite(*row.Ratio) || row.PeerValue != nil && !finite(*row.PeerValue) {
			rep.Rows[i] = Missing(row.Case, row.Metric, "no request has this figure")
		}
	}
	return rep
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func (r *Reassignment) note() string {
	what := "modelled device"
	if r.Real {
		what = "real encoding on this machine"
	}
	return fmt.Sprintf("%s; %s; scale %g, values are those of scale 1; load of the machine at the start %.2f", r.Machine, what, r.Scale, r.Load)
}

// compared shows a figure beside the published one, and for those of the calibration how far it is off.
func (r *Reassignment) compared(name string, f figure) []Row {
	peer, table := "published", published
	if r.Real {
		peer, table = "vLLM on two cores", onCPU
	}
	theirs, ok := table[name][f.name]
	metric := f.name + ", " + f.unit
	if !ok {
		return []Row{Absolute(name, metric, f.value, 0)}
	}
	row := Absolute(name, metric, f.value, 0)
	row.Peer, row.PeerValue = peer, &theirs
	if theirs > 0 {
		ratio := f.value / theirs
		row.Ratio = &ratio
	}
	for _, c := range calibrated[name] {
		if c != f.name || r.Real {
			continue
		}
		target := float64(maxResidual)
		if r.Scale > maxCheckedScale && strings.HasPrefix(c, "span") {
			target = 0
		}
		return []Row{row, Absolute(name, "residual of "+f.name+", %", 100*math.Abs(f.value/theirs-1), target)}
	}
	return []Row{row}
}

// kept says what a phase must keep to besides its times.
func (p *Phase) kept(r *Reassignment) []Row {
	rows := []Row{Absolute(p.Name, "not answered, requests", float64(r.Sent-p.answered()), 0)}
	if !strings.HasSuffix(p.Name, "seeding") {
		rows = append(rows, Absolute(p.Name, "dispatch lag p90, ms at its scale", p.quantile(lagOf, 0.9)/r.Scale, maxLagMS))
	}
	c := p.Counters
	if p.Name == "ES seeding" || p.Name == "direct seeding" {
		rows = append(rows, Absolute(p.Name, "published, images", c.Stored, 0), Absolute(p.Name, "published, GiB", c.StoreBytes/(1<<30), 0),
			zero(p.Name, "not published, images", float64(r.Images)-c.Stored))
	}
	if c.StoreRead > 0 {
		rows = append(rows, Absolute(p.Name, "read from the Store, GiB", c.StoreRead/(1<<30), 0))
	}
	for _, s := range []control.Source{control.SourceEncoded, control.SourceJoined, control.SourceStore, control.SourceLocal, control.SourceResident} {
		if n := p.sources()[s]; n > 0 {
			rows = append(rows, Absolute(p.Name, "images "+string(s), float64(n), 0))
		}
	}
	return append(rows, zero(p.Name, "publications pending at the end", c.Pending))
}

// maxLagMS bounds the lag of the client, as in the published experiment.
const maxLagMS = 1.7

// zero returns a row whose value must be 0.
func zero(name, metric string, v float64) Row {
	ok := v == 0
	return Row{Case: name, Metric: metric, Value: v, OK: &ok}
}
