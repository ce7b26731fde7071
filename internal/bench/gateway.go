// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Gateway measures the front door of vLLM workers against vLLM's own EPD proxy, vllm-router and a proxy that does
// nothing else, all of them before the same stub workers, in one run.
type Gateway struct {
	Binary   string    // this program
	Env      []string  // of the processes; the configuration in it is left out
	Progress io.Writer // for people; nil for none
	Peers    string    // folder of 'make peers'; "" compares with what needs no installation

	BodyBytes   int           // of a request with a picture
	Concurrency int           // clients
	Known       int           // pictures that come again
	Rounds      int           // each system is measured once per round, and the median counts
	During      time.Duration // of one measurement
	TextRate    int           // text requests per second
	InFlight    int           // requests whose memory is measured
	Streams     int           // that stand still
}

// DefaultGateway returns the figures that the targets are stated for.
func DefaultGateway() Gateway {
	return Gateway{
		BodyBytes: 4 << 20, Concurrency: 8, Known: 4, Rounds: 3, During: 3 * time.Second, TextRate: 1000, InFlight: 32, Streams: 10000,
	}
}

// Targets. Ratios of rates are stated the other way round, as the most that a peer may do.
const (
	minKnownVsPython = 6
	minNewVsPython   = 4
	minNewVsRouter   = 1.5
	minNewVsReverse  = 0.5
	maxTextP50MS     = 0.150
	maxTextP99MS     = 1
	maxBodyShare     = 1.5
	maxStreamsMiB    = 500
)

// fleetUnderTest is what a run has started.
type fleetUnderTest struct {
	launcher launcher
	workers  stubAddresses
	ours     *contender
	reverse  *contender
	python   *contender // nil if it is not installed
	router   *contender // likewise
	why      map[string]string
	stops    []func()
}

func (f *fleetUnderTest) stop() {
	for i := len(f.stops) - 1; i >= 0; i-- {
		f.stops[i]()
	}
}

// Run measures. It returns an error when something did not work at all; what is only slow is in the report.
func (g Gateway) Run(ctx context.Context) (Report, error) {
	p := newProgress(g.Progress)
	defer p.end()
	f, err := g.start(ctx, p)
	defer f.stop()
	if err != nil {
		return Report{}, err
	}
	rows, err := g.throughput(ctx, f, p)
	for _, part := range []func(context.Context, *fleetUnderTest, *progress) ([]Row, error){g.text, g.memory, g.streams} {
		var more []Row
		if err == nil {
			more, err = part(ctx, f, p)
			rows = append(rows, more...)
		}
	}
	return Report{Name: "gateway", Rows: rows,
		Note: Machine() + "; stub vLLM workers in a process of their own; clients, workers and what is measured share the machine"}, err
}

// start starts the workers and everything that is measured.
func (g Gateway) start(ctx context.Context, p *progress) (*fleetUnderTest, error) {
	p.step("starting stub workers and gateways")
	l := newLauncher(g.Binary, g.Env)
	f := &fleetUnderTest{launcher: l, why: map[string]string{}}
	stubs, at, err := l.vllmStubs(ctx)
	if err != nil {
		return f, err
	}
	f.stops, f.workers = append(f.stops, stubs.stop), at
	if f.ours, err = l.front(ctx, at); err != nil {
		return f, err
	}
	f.stops = append(f.stops, f.ours.stop)
	if f.reverse, err = l.reverseProxy(ctx, at); err != nil {
		return f, err
	}
	f.stops = append(f.stops, f.reverse.stop)
	why := "left out"
	if g.Peers != "" {
		if f.python, why, err = l.pythonProxy(ctx, g.Peers, at); err != nil {
			return f, err
		}
	}
	if f.python != nil {
		f.stops = append(f.stops, f.python.stop)
	}
	f.why["python"] = why
	if g.Peers != "" {
		if f.router, why, err = l.router(ctx, g.Peers, at); err != nil {
			return f, err
		}
	}
	if f.router != nil {
		f.stops = append(f.stops, f.router.stop)
	}
	f.why["router"] = why
	return f, nil
}

// throughput compares requests per second with pictures.
func (g Gateway) throughput(ctx context.Context, f *fleetUnderTest, p *progress) ([]Row, error) {
	urls := f.urls()
	clients := g.clients(urls)
	rates := map[string][]float64{}
	order := []string{"known", "new", "reverse", "python", "router", "direct"}
	for round := range g.Rounds + 1 { // the first warms up
		for _, name := range order {
			if urls[name] == "" {
				continue
			}
			p.step("round %d of %d: %s", round, g.Rounds, name)
			during := g.During
			if round == 0 {
				during = g.During / 4
			}
			r, err := rate(ctx, urls[name], clients[name], during)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				rates[name] = append(rates[name], r)
			}
		}
	}
	at := map[string]float64{}
	for name, rs := range rates {
		at[name] = Quantile(rs, 0.5)
	}
	return g.rateRows(at, f.why), nil
}

// urls is where each load goes, by its name.
func (f *fleetUnderTest) urls() map[string]string {
	urls := map[string]string{"known": f.ours.url, "new": f.ours.url, "reverse": f.reverse.url, "direct": f.workers.Prefill}
	if f.python != nil {
		urls["python"] = f.python.url
	}
	if f.router != nil {
		urls["router"] = f.router.url
	}
	return urls
}

// clients makes what each load sends.
func (g Gateway) clients(urls map[string]string) map[string][]*pictures {
	out := map[string][]*pictures{}
	for name := range urls {
		known := 0
		if name == "known" {
			known = g.Known
		}
		for i := range g.Concurrency {
			out[name] = append(out[name], newPictures(g.BodyBytes, i, known))
		}
	}
	return out
}

// rateRows holds the rates against each other.
func (g Gateway) rateRows(at map[string]float64, why map[string]string) []Row {
	size := fmt.Sprintf("%.3g MiB, concurrency %d", float64(g.BodyBytes)/(1<<20), g.Concurrency)
	row := func(name, metric, ours, peer, label string, least float64) Row {
		if at[peer] == 0 {
			r := Missing(name, metric, why[peer])
			r.Peer = label
			return r
		}
		return AtLeast(name, metric, at[ours], label, at[peer], least)
	}
	const metric = "requests/s"
	return []Row{
		row("known images, "+size, metric, "known", "python", "vLLM's EPD proxy", minKnownVsPython),
		row("new images, "+size, metric, "new", "python", "vLLM's EPD proxy", minNewVsPython),
		row("new images, "+size, metric, "new", "router", "vllm-router", minNewVsRouter),
		row("new images, "+size, metric, "new", "reverse", "httputil.ReverseProxy", minNewVsReverse),
		row("new images, "+size, metric, "new", "direct", "no gateway", 0),
	}
}

// text measures what the gateway adds to requests without media: in each round, the quantiles with it less those
// without, and of the rounds the median. What a proxy adds that does nothing else tells how much of that is the machine's.
func (g Gateway) text(ctx context.Context, f *fleetUnderTest, p *progress) ([]Row, error) {
	var p50, p99, bare50, bare99, via, direct []float64
	for round := range g.Rounds + 1 { // the first warms up
		p.step("text at %d/s, round %d of %d", g.TextRate, round, g.Rounds)
		with, err := paced(ctx, f.ours.url, g.TextRate, g.During)
		if err != nil {
			return nil, err
		}
		without, err := paced(ctx, f.workers.Prefill, g.TextRate, g.During)
		if err != nil {
			return nil, err
		}
		bare, err := paced(ctx, f.reverse.url, g.TextRate, g.During)
		if err != nil {
			return nil, err
		}
		if round == 0 {
			continue
		}
		bare50 = append(bare50, Quantile(bare, 0.5)-Quantile(without, 0.5))
		bare99 = append(bare99, Quantile(bare, 0.99)-Quantile(without, 0.99))
		via, direct = append(via, Quantile(with, 0.5)), append(direct, Quantile(without, 0.5))
		p50 = append(p50, Quantile(with, 0.5)-Quantile(without, 0.5))
		p99 = append(p99, Quantile(with, 0.99)-Quantile(without, 0.99))
	}
	at := fmt.Sprintf("text, %d/s", g.TextRate)
	return []Row{
		Absolute(at, "added, p50 ms", Quantile(p50, 0.5), maxTextP50MS),
		Absolute(at, "added, p99 ms", Quantile(p99, 0.5), maxTextP99MS),
		Against(at, "added, p50 ms", Quantile(p50, 0.5), "httputil.ReverseProxy", Quantile(bare50, 0.5), 0),
		Against(at, "added, p99 ms", Quantile(p99, 0.5), "httputil.ReverseProxy", Quantile(bare99, 0.5), 0),
		Against(at, "p50 ms", Quantile(via, 0.5), "no gateway", Quantile(direct, 0.5), 0),
	}, nil
}
