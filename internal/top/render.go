// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"afterimage/internal/control"
)

// Colours of a terminal; the empty Palette has none.
type Palette struct{ Bold, Dim, Good, Bad, Off string }

// Colours is what terminals show that know the basic colours.
var Colours = Palette{Bold: "\x1b[1m", Dim: "\x1b[2m", Good: "\x1b[32m", Bad: "\x1b[31m", Off: "\x1b[0m"}

// sources in the order of how little they cost.
var sources = []control.Source{control.SourceResident, control.SourceLocal, control.SourceStore, control.SourceEncoded}

// Render returns the lines that show s, at most height of them and none wider than width; 0 is no limit.
func Render(s Snapshot, width, height int, p Palette) []string {
	r := renderer{p: p, width: width}
	state := "live"
	if s.Note != "" {
		state = s.Note
	}
	r.line(p.Bold, "afterimage top  %s  %s  %s  %s", s.URL, cmp.Or(s.Version, "-"), s.Time.Format(time.TimeOnly), state)
	r.requests(s)
	r.images(s)
	r.store(s)
	r.line("", "")
	r.workers(s)
	r.line("", "")
	r.latest(s)
	if height > 0 && len(r.out) > height {
		r.out = r.out[:height]
	}
	return r.out
}

type renderer struct {
	p     Palette
	width int
	out   []string
}

// line adds a line in one colour, cut to the width.
func (r *renderer) line(colour, format string, args ...any) {
	text := []rune(strings.TrimRight(fmt.Sprintf(format, args...), " "))
	if r.width > 0 && len(text) > r.width {
		text = append(text[:max(r.width-1, 0)], '…')
	}
	if off := r.p.Off; colour != "" {
		r.out = append(r.out, colour+string(text)+off)
		return
	}
	r.out = append(r.out, string(text))
}

func (r *renderer) requests(s Snapshot) {
	colour := ""
	if s.Requests.Failed > 0 {
		colour = r.p.Bad
	}
	r.line(colour, "requests  %8d ended  %6.1f/s  %4d running  %d failed  first byte p50 %s p95 %s", s.Requests.Ended, s.Requests.PerSecond,
		s.Requests.Running, s.Requests.Failed, took(s.Requests.FirstByteP50MS), took(s.Requests.FirstByteP95MS))
}

func (r *renderer) images(s Snapshot) {
	var parts []string
	for _, src := range sources {
		parts = append(parts, fmt.Sprintf("%s %d", src, s.Images.Sources[src]))
	}
	r.line("", "pictures  %8d seen   %6.1f/s  %s reused  %s of embeddings  %s", s.Images.Seen, s.Images.PerSecond,
		share(s.Images.HitRate, s.Images.Seen > 0), size(s.Images.Bytes), strings.Join(parts, ", "))
}

func (r *renderer) store(s Snapshot) {
	t := s.Store
	if t == nil {
		r.line(r.p.Dim, "Store     %s", cmp.Or(s.StoreNote, "-"))
		return
	}
	const cells = 20
	full := 0.0
	if t.LimitBytes > 0 {
		full = min(1, float64(t.Bytes)/float64(t.LimitBytes))
	}
	filled := int(full*cells + 0.5)
	hits := 0.0
	if t.Gets > 0 {
		hits = float64(t.Hits) / float64(t.Gets)
	}
	r.line("", "Store     [%s%s] %s full, %s of %s, %d objects, %s of reads hit, %d evicted, %d on loan", strings.Repeat("#", filled), strings.Repeat("-", cells-filled),
		share(full, t.LimitBytes > 0), size(uint64(t.Bytes)), size(uint64(t.LimitBytes)), t.Objects, share(hits, t.Gets > 0), t.Evictions, t.Loans)
}

func (r *renderer) workers(s Snapshot) {
	r.line(r.p.Dim, "%-8s  %-20s  %-8s  %7s  %7s  %s", "ROLE", "NAME", "STATE", "RUNNING", "WAITING", "")
	for _, w := range s.Workers {
		state, colour, about := "up", r.p.Good, w.Model
		if !w.Up {
			state, colour, about = "down", r.p.Bad, w.Why
		}
		running, waiting := "", ""
		if w.Up {
			running, waiting = fmt.Sprint(w.Running), fmt.Sprint(w.Waiting)
		}
		r.line(colour, "%-8s  %-20s  %-8s  %7s  %7s  %s", w.Role, cmp.Or(w.Name, "-"), state, running, waiting, about)
	}
}

func (r *renderer) latest(s Snapshot) {
	width := 12
	for _, q := range s.Latest {
		width = max(width, utf8.RuneCountInString(q.by()))
	}
	r.line(r.p.Dim, "%6s  %-8s  %-7s  %9s  %-*s  %s", "REQUEST", "BEGUN", "STATUS", "TIME", width, "P/D", "PICTURES")
	for _, q := range s.Latest {
		status, colour := "in work", ""
		if q.Done {
			status = fmt.Sprint(q.Status)
			if q.Status >= 400 {
				colour = r.p.Bad
			}
		}
		var parts []string
		for _, src := range sources {
			if n := q.Sources[src]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, src))
			}
		}
		r.line(colour, "%7d  %-8s  %-7s  %9s  %-*s  %s", q.Number, q.Begun.Local().Format(time.TimeOnly), status, took(q.MS), width, q.by(), strings.Join(parts, ", "))
	}
}

// by names who computed the prompt and, where it is another, who gave the answer.
func (q Request) by() string {
	if q.Decode != "" {
		return q.Prefill + ", " + q.Decode
	}
	return cmp.Or(q.Prefill, "-")
}

// share writes a part of a whole as per cent, - where there is no whole.
func share(x float64, known bool) string {
	if !known {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*x)
}

// took writes milliseconds.
func took(ms float64) string {
	switch {
	case ms <= 0:
		return "-"
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 10000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

// size writes bytes.
func size(n uint64) string {
	x, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; x >= 1024 && i < len(units)-1; i++ {
		x /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", x, units[i])
}
