// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"afterimage/internal/engine/device"
	"afterimage/internal/load"
)

// Reassign reruns the published experiment: the same requests on six monolithic servers (M6), on two
// Encoders and four P/Ds that share nothing (EL), and on those with the Store (ES), each first seeded and then measured
// with the Encoders exchanged.
type Reassign struct {
	Binary   string
	Env      []string
	Progress io.Writer

	Configurations []string // of M6, EL, ES, direct, ideal
	Requests       int
	Images         int // per request
	Rate           float64
	TextTokens     int
	OutputTokens   int
	Seed           uint64  // of the trace
	Split          float64 // share of images that go to the first Encoder
	Scale          float64 // divides modelled times and gaps
	Profile        device.Profile
	// Model holds flags of a real model for all workers; with it, one P/D answers. Nil models a device.
	Model []string

	progress      *progress
	pictures      [][]byte // data URLs
	model         string
	bytesPerToken int
}

// DefaultReassign returns the published experiment, calibrated: what it left open (Seed, Split, host time
// per image, prefill time) is chosen so that M6 and EL come out as published.
func DefaultReassign() Reassign {
	p := device.DefaultProfile()
	// 0.75 s for the 1440 positions of a prompt.
	p.Host, p.Prefill, p.Whole, p.Answer, p.Slots = 6*time.Millisecond, 520*time.Microsecond, true, 0, 32
	return Reassign{
		Configurations: []string{"M6", "EL", "ES", "ideal"},
		Requests:       128, Images: 4, Rate: 2, TextTokens: 400, OutputTokens: 32,
		Seed: 11425, Split: 0.5, Scale: 1, Profile: p,
	}
}

// AllConfigurations lists what Reassign can run. ideal is ES once more when every Encoder has what it is
// asked for; direct is ES with P/Ds that read the Store, and resident the same once more, when they have kept
// everything.
func AllConfigurations() []string { return []string{"M6", "EL", "ES", "ideal", "direct", "resident"} }

// The fleet of the experiment.
const (
	monoliths        = 6
	reassignEncoders = 2
	reassignPrefills = 4
)

func (r *Reassign) validate() error {
	switch {
	case r.Requests < 1 || r.Requests > 1000: // the gateway remembers 1024 traces
		return fmt.Errorf("bench: %d requests; give 1 to 1000", r.Requests)
	case r.Images < 1 || r.Images > 16:
		return fmt.Errorf("bench: %d images per request; give 1 to 16", r.Images)
	case !(r.Rate > 0 && r.Rate <= 1000):
		return fmt.Errorf("bench: %v requests per second; give more than 0, at most 1000", r.Rate)
	case !(r.Scale >= 1 && r.Scale <= 1000):
		return fmt.Errorf("bench: a scale of %v; give 1 to 1000", r.Scale)
	case r.Scale > 1 && r.Model != nil:
		return errors.New("bench: real encoding has no scale")
	case !(r.Split >= 0 && r.Split <= 1):
		return fmt.Errorf("bench: a split of %v; give 0 to 1", r.Split)
	case r.TextTokens < 16 || r.TextTokens > 4000 || r.OutputTokens < 2 || r.OutputTokens > 2000:
		return fmt.Errorf("bench: %d tokens of text and %d of an answer; give 16 to 4000 and 2 to 2000", r.TextTokens, r.OutputTokens)
	}
	for _, c := range r.Configurations {
		if !slices.Contains(AllConfigurations(), c) {
			return fmt.Errorf("bench: unknown configuration %q; there are %q", c, AllConfigurations())
		}
	}
	return nil
}

func (r *Reassign) scale() float64 { return r.Scale }

// prefills returns how many P/Ds answer beside the Encoders.
func (r *Reassign) prefills() int {
	if r.Model != nil {
		return 1
	}
	return reassignPrefills
}

// Run measures. On an error, or when ctx ends, it returns what was measured until then.
func (r Reassign) Run(ctx context.Context) (*Reassignment, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	r.progress = newProgress(r.Progress)
	defer r.progress.end()
	r.Profile.Scale = r.Scale
	r.model, r.bytesPerToken = modelledName, 1
	out := &Reassignment{
		Bench: "reassignment", Machine: Machine(), Started: time.Now(), Scale: r.Scale, Real: r.Model != nil, Load: machineLoad(),
		Phases: map[string]*Phase{}, Images: r.Requests * r.Images, Sent: r.Requests, Setup: r.setup(),
	}
	r.progress.step("making %d pictures", r.Requests*r.Images)
	var err error
	if r.pictures, err = dataURLs(r.Requests*r.Images, r.Seed, func(int) int { return pictureSide }); err != nil {
		return nil, err
	}
	trace := newRoutes(r.Seed, r.Requests, r.Images, r.Rate, r.Split, r.prefills())
	for _, part := range []func(context.Context, *Reassignment, routes) error{r.monolithic, r.local, r.shared, r.direct} {
		if err = part(ctx, out, trace); ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			out.Fault = err.Error()
			break
		}
	}
	return out, err
}

// maxSettledScale is the scale above which a run is a trial, and does not wait for memory to be faulted in.
const maxSettledScale = 50

func (r *Reassign) wants(name ...string) bool {
	return slices.ContainsFunc(name, func(n string) bool { return slices.Contains(r.Configurations, n) })
}

// fleet runs f with a fleet and stops it.
func (r *Reassign) fleet(ctx context.Context, name string, spec rolesSpec, f func(*roles) error) error {
	dir, err := os.MkdirTemp("", "afterimage-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r.progress.step("%s: starting %d Encoders and %d P/Ds", name, spec.encoders, spec.prefills)
	spec.profile, spec.model = r.Profile, r.Model
	fleet, err := newLauncher(r.Binary, r.Env).roles(ctx, dir, spec)
	if err != nil {
		return err
	}
	defer fleet.stop()
	if r.Model != nil {
		r.bytesPerToken = bytesPerToken
		if r.model, err = load.Model(ctx, load.Config{URL: fleet.gateway, Client: load.NewClient()}); err != nil {
			return err
		}
	}
	if r.Scale > maxSettledScale {
		return f(fleet)
	}
	total := spec.storeBytes + int64(spec.encoders)*spec.encoderArena + int64(spec.prefills)*spec.prefillArena
	if err := settleMemory(ctx, total); err != nil {
		return err
	}
	return f(fleet)
}

// phase runs one pass and files it.
func (r *Reassign) phase(ctx context.Context, out *Reassignment, f *roles, p pass) error {
	r.progress.step("%s: %d requests", p.name, len(p.routes.at))
	ph, err := r.run(ctx, f, p)
	if ph != nil && (err == nil || len(ph.Records) > 0) {
		out.Phases[p.name] = ph
	}
	return err
}
