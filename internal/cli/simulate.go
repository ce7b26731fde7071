// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"afterimage/internal/config"
	"afterimage/internal/sim"
)

// traceFlags name a trace, or describe one to make up.
type traceFlags struct {
	Trace  string `arg:"" optional:"" placeholder:"FILE" help:"Trace to read, - for standard input. None makes one up."`
	Format string `placeholder:"NAME" enum:"native,azure,mooncake,bailian" default:"native" group:"trace" help:"native (CSV or JSON lines of time, request, image, bytes), azure, mooncake or bailian (default ${default})."`

	Requests   int     `placeholder:"N" default:"10000" group:"trace" help:"Requests to make up (default ${default})."`
	Rate       float64 `placeholder:"N" default:"2" group:"trace" help:"Made-up requests per second (default ${default})."`
	Arrivals   string  `placeholder:"KIND" enum:"poisson,uniform,bursts" default:"poisson" group:"trace" help:"How they come: poisson, uniform, or bursts of 8 at once (default ${default})."`
	Images     string  `placeholder:"MIX" default:"4" group:"trace" help:"Images per request: a number, or numbers with weights such as 1:0.5,4:0.5 (default ${default})."`
	Popularity string  `placeholder:"KIND" default:"zipf:0.9:10000" group:"trace" help:"How often which image comes: zipf:S:N, even:N or unique. Azure traces, which do not tell images apart, take it too (default ${default})."`
	Repeat     float64 `placeholder:"SHARE" default:"0" group:"trace" help:"Share of images that repeat one of the last --recent (default ${default})."`
	Recent     int     `placeholder:"N" default:"64" group:"trace" help:"How far back --repeat reaches, in images (default ${default})."`
	Seed       uint64  `placeholder:"N" default:"1" group:"trace" help:"Seed of what is made up (default ${default})."`

	ItemBytes    config.Bytes `placeholder:"SIZE" default:"2560KiB" group:"trace" help:"Size of an embedding that the trace gives no size for (default ${default})."`
	TextTokens   int32        `placeholder:"N" default:"400" group:"trace" help:"Tokens of text of a request that the trace gives none for (default ${default})."`
	OutputTokens int32        `placeholder:"N" default:"32" group:"trace" help:"Tokens of an answer that the trace gives none for (default ${default})."`
}

// sizes returns what stands for what a trace does not say.
func (f *traceFlags) sizes() (sim.Sizes, error) {
	s := sim.DefaultSizes()
	s.ItemBytes, s.TextTokens, s.OutputTokens, s.Seed = int(f.ItemBytes), f.TextTokens, f.OutputTokens, f.Seed
	var err error
	if s.Popularity, err = sim.ParsePopularity(f.Popularity); err != nil {
		return s, usageError{fmt.Errorf("--popularity: %w", err)}
	}
	if s.ItemBytes < 1 || s.TextTokens < 0 || s.OutputTokens < 0 {
		return s, usageError{errors.New("--item-bytes must be at least 1, --text-tokens and --output-tokens at least 0")}
	}
	return s, nil
}

// load reads or makes the trace.
func (f *traceFlags) load(stdin io.Reader) (*sim.Trace, error) {
	sizes, err := f.sizes()
	if err != nil {
		return nil, err
	}
	if f.Trace == "" {
		return f.generate(sizes)
	}
	if f.Trace != "-" {
		file, err := os.Open(f.Trace)
		if err != nil {
			return nil, usageError{err}
		}
		defer file.Close()
		stdin = file
	}
	t, err := sim.Read(stdin, sim.Format(f.Format), sizes)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", f.Trace, err)}
	}
	return t, nil
}

// generate makes the trace up that the flags describe.
func (f *traceFlags) generate(sizes sim.Sizes) (*sim.Trace, error) {
	images, err := sim.ParseMix(f.Images)
	if err != nil {
		return nil, usageError{fmt.Errorf("--images: %w", err)}
	}
	t, err := sim.Generate(sim.Synthetic{
		Requests: f.Requests, Rate: f.Rate, Arrivals: sim.Arrivals(f.Arrivals), Images: images,
		Popularity: sizes.Popularity, Repeat: f.Repeat, Recent: f.Recent, Sizes: sizes, Seed: f.Seed,
	})
	if err != nil {
		return nil, usageError{err}
	}
	return t, nil
}

// describe says what a trace holds.
func (f *traceFlags) describe(t *sim.Trace) string {
	return fmt.Sprintf("%s: %d requests over %v (%.4g/s) with %d images, %d of them distinct (%s of embeddings)",
		cmp.Or(f.Trace, "made-up trace"), len(t.Requests), t.Length().Round(time.Millisecond), t.Rate(), t.Items(), t.Images, size(t.DistinctBytes()))
}

// modelFlags describe the fleet.
type modelFlags struct {
	Encode        time.Duration `placeholder:"TIME" default:"104.8ms" group:"fleet" help:"Device time per image (default ${default})."`
	Host          time.Duration `placeholder:"TIME" default:"0s" group:"fleet" help:"Host time per image, before the device begins (default ${default})."`
	Prefill       time.Duration `placeholder:"TIME" default:"20us" group:"fleet" help:"Device time per prompt position (default ${default})."`
	Decode        time.Duration `placeholder:"TIME" default:"19.2ms" group:"fleet" help:"Device time per decode step (default ${default})."`
	Hit           time.Duration `placeholder:"TIME" default:"500us" group:"fleet" help:"Time to take an embedding from a cache or the Store and deliver it (default ${default})."`
	Fixed         time.Duration `placeholder:"TIME" default:"5ms" group:"fleet" help:"Time that every request takes besides (default ${default})."`
	Whole         bool          `group:"fleet" help:"Prefill begins when the whole prompt is there."`
	StepTokens    int           `placeholder:"N" default:"128" group:"fleet" help:"Positions of prompts that a P/D prefills between two decode steps, as prefill.step_tokens; 0 is no bound (default ${default})."`
	CacheBytes    config.Bytes  `placeholder:"SIZE" default:"256MiB" group:"fleet" help:"Each Encoder's own cache (default ${default})."`
	ResidentBytes config.Bytes  `placeholder:"SIZE" default:"0" group:"fleet" help:"What each P/D keeps after a request (default ${default})."`

	Admission string        `placeholder:"RULE" enum:"always,second-sighting" default:"always" group:"store" help:"What Encoders publish: always, or at an image's second-sighting (default ${default})."`
	TTL       time.Duration `placeholder:"TIME" default:"0s" group:"store" help:"How long an embedding stays in the Store; 0s is for ever (default ${default})."`
	Eviction  string        `placeholder:"RULE" enum:"lru,fifo,lfu" default:"lru" group:"store" help:"What leaves a full Store first: lru, fifo or lfu (default ${default})."`
	Direct    bool          `group:"store" help:"P/Ds read hits from the Store themselves."`
}

func (f *modelFlags) model(encoders, prefills int) sim.Model {
	m := sim.DefaultModel()
	m.Encoders, m.Prefills = encoders, prefills
	m.Encode, m.Host, m.Prefill, m.Step = f.Encode, f.Host, f.Prefill, f.Decode
	m.Hit, m.Fixed, m.Whole = f.Hit, f.Fixed, f.Whole
	m.StepTokens = f.StepTokens
	m.CacheBytes, m.ResidentBytes = int64(f.CacheBytes), int64(f.ResidentBytes)
	return m
}

// policies returns the four policies with what the flags say of the Store.
func (f *modelFlags) policies(store int64) []sim.Policy {
	ps := sim.Policies(store)
	for i := range ps {
		ps[i].SecondSighting, ps[i].TTL = f.Admission == "second-sighting", f.TTL
		ps[i].Eviction, ps[i].Direct = sim.Eviction(f.Eviction), f.Direct
	}
	return ps
}

// assumptions says what a result rests on besides the trace.
func (f *modelFlags) assumptions(t *sim.Trace) []string {
	out := []string{
		fmt.Sprintf("modelled device: encode %v and host %v per image, prefill %v per position, decode step %v, hit %v, fixed %v per request",
			f.Encode, f.Host, f.Prefill, f.Decode, f.Hit, f.Fixed),
		fmt.Sprintf("the trace begins with empty caches; Encoders and P/Ds work serially, in order; while answers are decoded, a step goes before each %d positions of a prompt (0: before all of it); nothing fails and no network is full", f.StepTokens),
		fmt.Sprintf("Encoder cache %v, P/D residents %v, Store eviction %s, admission %s, time to live %v", f.CacheBytes, f.ResidentBytes, f.Eviction, f.Admission, f.TTL),
	}
	if t.Assumed != "" {
		out = append(out, t.Assumed)
	}
	return out
}

// simulateCmd runs traces through a modelled fleet.
type simulateCmd struct {
	traceFlags `embed:""`
	modelFlags `embed:""`

	Encoders   int          `placeholder:"N" default:"2" group:"fleet" help:"Encoders (default ${default})."`
	Prefills   int          `placeholder:"N" default:"4" group:"fleet" help:"P/Ds (default ${default})."`
	StoreBytes config.Bytes `placeholder:"SIZE" default:"1GiB" group:"store" help:"Size of the Store (default ${default})."`
	Policy     []string     `placeholder:"NAME" enum:"none,affinity,store,both" default:"none,affinity,store,both" help:"Policies to compare: none, affinity, store, both (default all)."`
	Write      string       `placeholder:"FILE" help:"Also write the trace as native CSV."`
	JSON       bool         `help:"Print one JSON document instead of a table."`
}

// Help is shown below the command's own line.
func (*simulateCmd) Help() string {
	return "Nothing is run: Encoders, caches, Store and P/Ds are modelled, and the trace is taken through them once per policy. " +
		"'none' routes images anywhere and shares nothing, 'affinity' sends an image to the same Encoder always, 'store' shares through the Store, 'both' does both. " +
		"'afterimage bench serve --record' writes a trace of what it sent."
}

// Run is called by the parser.
func (c *simulateCmd) Run(a *app) error {
	ctx, stop := interruptible(a.ctx, func() { os.Exit(exitFailure) })
	defer stop()
	t, err := c.load(os.Stdin)
	if err != nil {
		return err
	}
	if err := save(c.Write, t.Write); err != nil {
		return err
	}
	outcomes, err := c.outcomes(ctx, t)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(a.Stdout).Encode(map[string]any{
			"trace": c.describe(t), "assumptions": c.assumptions(t), "outcomes": outcomes,
		})
	}
	return c.print(a.Stdout, t, outcomes)
}

// outcomes runs the chosen policies side by side.
func (c *simulateCmd) outcomes(ctx context.Context, t *sim.Trace) ([]sim.Outcome, error) {
	chosen := slices.DeleteFunc(c.policies(int64(c.StoreBytes)), func(p sim.Policy) bool { return !slices.Contains(c.Policy, p.Name) })
	out := make([]sim.Outcome, len(chosen))
	grp, ctx := errgroup.WithContext(ctx)
	grp.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range chosen {
		grp.Go(func() (err error) {
			out[i], err = sim.Run(ctx, t, c.model(c.Encoders, c.Prefills), p)
			return err
		})
	}
	if err := grp.Wait(); err != nil {
		return nil, usageError{err}
	}
	return out, nil
}

// print writes the table; changes are against the first row.
func (c *simulateCmd) print(w io.Writer, t *sim.Trace, outcomes []sim.Outcome) error {
	fmt.Fprintln(w, c.describe(t))
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "policy\thit rate\tresident\tlocal\tstore\tjoined\tencoded\tsaved\tTTFT p50\tp90\tp99\tp50 change\tp90 change\tspan p50\tp90\tencoder use\tspread\tStore peak\tin\tout\tevicted")
	base := outcomes[0]
	for _, o := range outcomes {
		fmt.Fprintf(tab, "%s\t%.1f %%\t%d\t%d\t%d\t%d\t%d\t%d\t%.3f s\t%.3f s\t%.3f s\t%+.1f %%\t%+.1f %%\t%.3f s\t%.3f s\t%.2f\t%.2f\t%s\t%s\t%s\t%d\n",
			o.Policy, 100*o.HitRate(), o.Resident, o.Local, o.Store, o.Joined, o.Encoded, o.Items-o.Encoded, o.P50, o.P90, o.P99,
			100*(o.P50/base.P50-1), 100*(o.P90/base.P90-1), o.SpanP50, o.SpanP90, o.EncoderUse, o.EncoderSpread,
			size(o.StorePeakBytes), size(o.StoreInBytes), size(o.StoreOutBytes), o.StoreEvicted)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for _, o := range outcomes {
		if o.EncoderUse >= 1 || o.PrefillUse >= 1 {
			fmt.Fprintf(w, "%s: overloaded (Encoders %.2f, P/Ds %.2f of what they can do): its queue grows to the end of the trace\n", o.Policy, o.EncoderUse, o.PrefillUse)
		}
	}
	_, err := fmt.Fprintln(w, "assumed: "+strings.Join(c.assumptions(t), "\nassumed: "))
	return err
}
