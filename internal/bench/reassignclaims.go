// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"math"
)

// Targets of ES against EL.
const (
	maxSpanRatio   = 0.05  // of EL's fan-out span
	minOfCeiling   = 0.95  // of what a free fan-out would take off TTFT
	maxTPOTPercent = 1.0   // by which TPOT may differ
	maxSeedRatio   = 1.002 // of EL's seeding wall clock
)

// claims holds configurations against each other.
func (r *Reassignment) claims() []Row {
	el, es := r.Phases["EL"], r.Phases["ES"]
	if el == nil {
		return nil
	}
	var rows []Row
	for _, name := range []string{"ES", "direct", "resident"} {
		if p := r.Phases[name]; p != nil {
			rows = append(rows, r.against(p, el)...)
		}
	}
	if es != nil {
		rows = append(rows, r.seeding()...)
	}
	return rows
}

// against holds a configuration with the Store against EL.
func (r *Reassignment) against(p, el *Phase) []Row {
	name := p.Name + " against EL"
	rows := []Row{zero(name, "re-encoded, images", p.Counters.Encodes)}
	span := maxSpanRatio
	if r.Scale > maxCheckedScale || r.Real {
		span = 0
	}
	for _, q := range []float64{0.5, 0.9, 0.99} {
		at := fmt.Sprintf("p%g", 100*q)
		ours, theirs := p.quantile(ttftOf, q), el.quantile(ttftOf, q)
		rows = append(rows, Against(name, "TTFT "+at+", ms", ours, "EL", theirs, 0))
		if q == 0.99 { // shown beside the others, and promised nowhere
			span = 0
		}
		rows = append(rows, Against(name, "span "+at+", ms", p.quantile(spanOf, q), "EL", el.quantile(spanOf, q), span))
		if ideal := r.Phases["ideal"]; ideal != nil && q < 0.99 {
			rows = append(rows, ofCeiling(name, "TTFT "+at, ideal.quantile(ttftOf, q), ours, theirs)...)
		}
	}
	tpot := maxTPOTPercent
	if r.Real {
		tpot = 0
	}
	return append(rows, Absolute(name, "difference of TPOT p50, %", 100*math.Abs(p.quantile(tpotOf, 0.5)/el.quantile(tpotOf, 0.5)-1), tpot))
}

// ofCeiling shows what a free fan-out would take off a time of EL, what ours takes off, and how much of the
// former that misses.
func ofCeiling(name, metric string, ideal, ours, el float64) []Row {
	most, got := 100*(1-ideal/el), 100*(1-ours/el)
	rows := []Row{
		Absolute(name, metric+" reduced by, %", got, 0),
		Absolute(name, metric+" reduced by with a free fan-out (ceiling), %", most, 0),
	}
	if most <= 0 {
		return append(rows, Missing(name, metric+", part of the ceiling missed, %", "a free fan-out was no faster than EL: the machine was too busy"))
	}
	return append(rows, Absolute(name, metric+", part of the ceiling missed, %", 100*(1-got/most), 100*(1-minOfCeiling)))
}

// seeding holds the first pass, in which every image is new, with the Store against without it: what a cold miss
// costs, and a workload for which the Store is of no use.
func (r *Reassignment) seeding() []Row {
	with, without := r.Phases["ES seeding"], r.Phases["EL seeding"]
	if with == nil || without == nil {
		return nil
	}
	target := maxSeedRatio
	if r.Scale > maxCheckedScale || r.Real {
		target = 0
	}
	const name = "no image known"
	rows := []Row{Against(name, "seeding wall clock, s", with.Wall, "without Store", without.Wall, target)}
	for _, q := range []float64{0.5, 0.9, 0.99} {
		at := fmt.Sprintf("p%g, ms", 100*q)
		a, b := with.quantile(ttftOf, q), without.quantile(ttftOf, q)
		rows = append(rows, Against(name, "TTFT "+at, a, "without Store", b, 0), Absolute(name, "a cold miss costs a request, TTFT "+at, a-b, 0))
	}
	return rows
}
