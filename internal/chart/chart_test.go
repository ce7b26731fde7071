// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

// TestPageIsOneFile checks that hostile text is escaped, every drawing is well-formed, and nothing is
// loaded from elsewhere.
func TestPageIsOneFile(t *testing.T) {
	evil := `<script>alert("x")</script>&`
	p := Page{Title: evil, Intro: []string{evil}, Facts: [][2]string{{evil, evil}}, Sections: []Section{{
		Title: evil, Text: []string{evil}, Table: &Table{Head: []string{evil}, Rows: [][]string{{evil}, {"b"}}, Marks: []string{"bad"}},
		Plots: []Plot{
			&Lines{Title: evil, X: evil, Y: evil, Series: []Series{{evil, [][2]float64{{0, 1}, {5, 2}, {7, math.Inf(1)}}}, {"none", nil}}},
			&Lines{Title: "dots", X: "x", Y: "y", Dots: true, Series: []Series{{"one", [][2]float64{{3, 3}}}}},
			&Timeline{Title: evil, X: evil, Kinds: []string{evil, "b"}, Rows: []Row{{evil, []Span{{0, 1, "b"}, {1, 1, "unknown"}}}}},
			&Timeline{Title: "empty"},
		},
	}}}
	var w strings.Builder
	if err := p.Write(&w); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script", "http://", "https://", "url(", "@import"} {
		if strings.Contains(w.String(), bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	for _, plot := range p.Sections[0].Plots {
		d := xml.NewDecoder(strings.NewReader(string(plot.SVG())))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%v in %s", err, plot.SVG())
				break
			}
		}
	}
}

func TestTicksAreRoundAndWithin(t *testing.T) {
	for _, r := range [][2]float64{{0, 1}, {0, 0.003}, {-5, 17}, {0, 1e9}, {0, 64.1}} {
		s := scale{from: r[0], to: r[1], length: 100}
		ticks := s.ticks(8)
		if len(ticks) < 3 || len(ticks) > 10 || ticks[0] < r[0]-1e-9 || ticks[len(ticks)-1] > r[1]*(1+1e-9) {
			t.Errorf("%v: %v", r, ticks)
		}
	}
}
