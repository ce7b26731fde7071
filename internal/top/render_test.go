// SPDX-License-Identifier: Apache-2.0

package top

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func shown(t *testing.T) Snapshot {
	t.Helper()
	v := NewViewer("http://g")
	v.Add(event(1), noon)
	e := event(21)
	e.Requests[0].Status, e.Requests[0].Decode = 503, "decode-0"
	e.Totals.Failed = 1
	v.Add(e, noon.Add(4*time.Second))
	s := v.Snapshot(noon.Add(5 * time.Second))
	for i := range s.Latest {
		s.Latest[i].Begun = s.Latest[i].Begun.In(time.Local)
	}
	return s
}

func TestRender(t *testing.T) {
	begun := noon.Local().Format(time.TimeOnly)
	want := `afterimage top  http://g  v1  12:00:05  live
requests        21 ended     4.0/s     0 running  1 failed  first byte p50 - p95 -
pictures        21 seen      4.0/s  95.2 % reused  21.0 MiB of embeddings  resident 0, local 0, store 20, encoded 1
Store     [#####---------------] 25.0 % full, 1.0 MiB of 4.0 MiB, 1 objects, 75.0 % of reads hit, 0 evicted, 0 on loan

ROLE      NAME                  STATE     RUNNING  WAITING
encoder   encoder-0             down                        does not answer
encoder   encoder-1             up              0        0  m
prefill   prefill-0             up              2        1  m
decode    decode-0              up              1        0  m

REQUEST  BEGUN     STATUS        TIME  P/D                  PICTURES
     21  ` + begun + `  503         150 ms  prefill-0, decode-0  1 store
      1  ` + begun + `  200         150 ms  prefill-0            1 store`
	if d := cmp.Diff(strings.Split(want, "\n"), Render(shown(t), 0, 0, Palette{})); d != "" {
		t.Error(d)
	}
}

// A terminal of any size gets no more than fits, colours or not.
func TestRenderFits(t *testing.T) {
	s := shown(t)
	for _, size := range [][2]int{{1, 1}, {20, 5}, {80, 24}, {200, 3}} {
		plain, coloured := Render(s, size[0], size[1], Palette{}), Render(s, size[0], size[1], Colours)
		if len(plain) > size[1] || len(coloured) != len(plain) {
			t.Errorf("%v: %d lines, %d with colours", size, len(plain), len(coloured))
		}
		for i, l := range plain {
			if n := utf8.RuneCountInString(l); n > size[0] {
				t.Errorf("%v: line of %d: %s", size, n, l)
			}
			if strip := strings.NewReplacer(Colours.Bold, "", Colours.Dim, "", Colours.Good, "", Colours.Bad, "", Colours.Off, ""); strip.Replace(coloured[i]) != l {
				t.Errorf("%v: colours change %q to %q", size, l, coloured[i])
			}
		}
	}
}

// Before anything is known there is something to see, and a lost connection is named.
func TestRenderOfNothing(t *testing.T) {
	v := NewViewer("http://g")
	v.Lose("no connection")
	text := strings.Join(Render(v.Snapshot(noon), 0, 0, Palette{}), "\n")
	for _, want := range []string{"no connection", "- reused", "Store     -", "ROLE"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
