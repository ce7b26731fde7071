// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// roleSample is what a process holds at one time. Memory is in MiB: private is resident and no arena, shared is
// what is resident of arenas, its own and those that others show it.
type roleSample struct{ private, shared, heap, goroutines, files float64 }

// fleetSample is a look at all processes of a fleet.
type fleetSample struct {
	at    time.Time
	roles map[string]roleSample
}

// watch looks at the processes of an up again and again.
type watch struct {
	u    *upRun
	pids map[string]int

	mu      sync.Mutex // guards samples
	samples []fleetSample
}

func (u *upRun) watch(t *testing.T) *watch {
	t.Helper()
	w := &watch{u: u, pids: u.roles()}
	w.pids["up"] = u.cmd.Process.Pid
	return w
}

// every takes a sample at each tick until stop is called.
func (w *watch) every(t *testing.T, period time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		ticks := time.NewTicker(period)
		defer ticks.Stop()
		for {
			s := w.sample(t)
			w.mu.Lock()
			w.samples = append(w.samples, s)
			w.mu.Unlock()
			select {
			case <-ticks.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// sample looks once.
func (w *watch) sample(t *testing.T) fleetSample {
	s := fleetSample{at: time.Now(), roles: map[string]roleSample{}}
	for name, pid := range w.pids {
		r, err := readRole(pid)
		if err == nil && name != "up" {
			err = w.goFigures(t.Context(), name, &r)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		s.roles[name] = r
	}
	return s
}

// readRole asks the kernel.
func readRole(pid int) (r roleSample, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return r, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "RssAnon:", "RssFile:":
			r.private += kib / 1024
		case "RssShmem:":
			r.shared = kib / 1024
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	r.files = float64(len(files))
	return r, err
}

// goFigures asks the role.
func (w *watch) goFigures(ctx context.Context, name string, r *roleSample) error {
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, "http://"+w.u.address[name]+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := w.u.client.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		v, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_goroutines":
			r.goroutines = v
		case "go_memstats_heap_inuse_bytes":
			r.heap = v / (1 << 20)
		}
	}
	return nil
}

// latest prints the private memory of each role.
func (w *watch) latest() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	if n := len(w.samples); n > 0 {
		for _, name := range slices.Sorted(maps.Keys(w.pids)) {
			fmt.Fprintf(&b, "%s %.1f, ", name, w.samples[n-1].roles[name].private)
		}
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// series returns one figure of a role after warm-up, as points of hours and values.
func (w *watch) series(name string, warm time.Duration, of func(roleSample) float64) (hours, values []float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.samples {
		if r, ok := s.roles[name]; ok && s.at.Sub(w.samples[0].at) >= warm {
			hours, values = append(hours, s.at.Sub(w.samples[0].at).Hours()), append(values, of(r))
		}
	}
	return hours, values
}

// figures are what the table shows of a role.
var figures = []struct {
	name string
	of   func(roleSample) float64
}{
	{"private MiB", func(r roleSample) float64 { return r.private }},
	{"shared MiB", func(r roleSample) float64 { return r.shared }},
	{"Go heap MiB", func(r roleSample) float64 { return r.heap }},
	{"goroutines", func(r roleSample) float64 { return r.goroutines }},
	{"open files", func(r roleSample) float64 { return r.files }},
}

// table prints start, end (medians of the first and last twelfth after warm-up) and slope of each figure of each role.
func (w *watch) table(warm time.Duration) string {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "role\t")
	for _, f := range figures {
		fmt.Fprintf(tw, "%s\tper h\t", f.name)
	}
	for _, name := range slices.Sorted(maps.Keys(w.pids)) {
		fmt.Fprintf(tw, "\n%s\t", name)
		for _, f := range figures {
			hours, values := w.series(name, warm, f.of)
			part := (len(values) + 11) / 12
			fmt.Fprintf(tw, "%.1f to %.1f\t%+.1f\t", median(values[:part]), median(values[len(values)-part:]), theilSen(hours, values))
		}
	}
	tw.Flush()
	return b.String()
}

// verdict fails for memory that grows.
func (w *watch) verdict(t *testing.T, plan loadPlan) {
	t.Helper()
	for name := range w.pids {
		for _, f := range figures[:2] {
			hours, values := w.series(name, plan.warm, f.of)
			if len(values) == 0 {
				t.Errorf("%s was not seen after the caches were full", name)
			} else if grown := values[len(values)-1] - values[0]; grown > plan.growth {
				t.Errorf("%s: %s grow from %.1f to %.1f, by more than %.0f", name, f.name, values[0], values[len(values)-1], plan.growth)
			}
			if slope := theilSen(hours, values); plan.slope > 0 && slope > plan.slope {
				t.Errorf("%s: %s grow by %.1f per hour, by more than %.0f", name, f.name, slope, plan.slope)
			}
		}
	}
}
