// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"

	"afterimage/internal/chart"
)

// The stages of a request on its timeline.
const (
	stageLag     = "client"
	stageGateway = "gateway"
	stageFanOut  = "fan-out"
	stagePrefill = "prefill"
	stageDecode  = "decode"
)

// timeline draws each request by stage.
func (p *Phase) timeline() *chart.Timeline {
	t := &chart.Timeline{Title: p.Name, X: "s", Kinds: []string{stageGateway, stageFanOut, stagePrefill, stageDecode, stageLag}}
	for i := range p.Records {
		r := &p.Records[i]
		at := r.DueMS
		row := chart.Row{Label: fmt.Sprintf("request %d: first token after %.0f ms", r.Index, r.TTFTMS)}
		to := func(kind string, until float64) {
			if until > at {
				row.Spans = append(row.Spans, chart.Span{From: at / 1000, To: until / 1000, Kind: kind})
				at = until
			}
		}
		to(stageLag, r.DueMS+r.LagMS)
		sent := at
		if r.Trace != nil {
			for _, s := range r.Trace.Stages {
				switch s.Name {
				case "media":
					to(stageGateway, sent+s.MS)
				case "prepare", "delivered":
					to(stageFanOut, sent+s.MS)
				}
			}
		}
		to(stagePrefill, r.DueMS+r.TTFTMS)
		to(stageDecode, r.DueMS+r.EndMS)
		t.Rows = append(t.Rows, row)
	}
	return t
}

// encoders draws what each Encoder's engine did; nil if none did anything.
func (p *Phase) encoders() *chart.Timeline {
	t := &chart.Timeline{Title: p.Name, X: "s", Kinds: []string{"encode"}}
	rows := map[string]int{}
	for i := range p.Records {
		r := &p.Records[i]
		if r.Trace == nil {
			continue
		}
		prepared := 0.0
		for _, s := range r.Trace.Stages {
			if s.Name == "prepare" {
				prepared = s.MS
			}
		}
		for _, it := range r.Trace.Items {
			if it.Source != "encoded" {
				continue
			}
			k, ok := rows[it.Encoder]
			if !ok {
				k = len(t.Rows)
				rows[it.Encoder] = k
				t.Rows = append(t.Rows, chart.Row{Label: it.Encoder})
			}
			from := r.DueMS + r.LagMS + prepared
			t.Rows[k].Spans = append(t.Rows[k].Spans, chart.Span{From: (from + it.QueueMS) / 1000, To: (from + it.MS - it.TransferMS) / 1000, Kind: "encode"})
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}
