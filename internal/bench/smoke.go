// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"afterimage/internal/client"
)

// Smoke measures what every installation should hold: that a Store hit is far cheaper than an encode,
// and that the gateway, its memory and the start of a fleet cost little. It starts all processes
// itself, on free ports.
type Smoke struct {
	Binary   string    // this program
	Env      []string  // of the processes; the configuration in it is left out
	Progress io.Writer // for people; nil for none

	Starts   int // measured starts of up
	Pictures int // measured pictures
	Pairs    int // measured requests with and without gateway
}

// DefaultSmoke returns the figures that the targets are stated for.
func DefaultSmoke() Smoke { return Smoke{Starts: 3, Pictures: 20, Pairs: 200} }

// Targets of smoke.
const (
	maxHitRatio   = 0.1 // of a fresh encode
	maxOverheadMS = 2
	maxIdleMiB    = 60
	maxUpSeconds  = 5
)

const (
	pictureSide = 448     // pixels; a picture of this size is a few hundred KiB
	imageBytes  = 1 << 20 // of the image in a request that the gateway is measured with
	warmPairs   = 20      // requests each way that are not measured
	answerLen   = 4       // tokens; a first text may take more than one
	idleFor     = 5 * time.Second
)

// Run measures. It returns an error when something did not work at all; what is only slow is in the
// report.
func (s Smoke) Run(ctx context.Context) (Report, error) {
	p := newProgress(s.Progress)
	defer p.end()
	l := newLauncher(s.Binary, s.Env)
	up, fleet, err := s.starts(ctx, l, p)
	if err != nil {
		return Report{}, err
	}
	idle, hits, err := s.fleet(ctx, fleet, p)
	fleet.stop() // before the gateway is measured: a fleet takes time even when it idles
	if err != nil {
		return Report{}, err
	}
	added, err := s.gateway(ctx, l, p)
	if err != nil {
		return Report{}, err
	}
	return Report{
		Name: "smoke",
		Note: Machine() + "; demo model, one thread per role; the gateway is measured before stub workers in a process of their own",
		Rows: append(append(hits, added...), idle, up),
	}, nil
}

// starts measures how long up takes to be ready, and leaves the last fleet running. The first start
// is not measured: it fills the caches and makes the demo model if it is missing.
func (s Smoke) starts(ctx context.Context, l launcher, p *progress) (Row, *running, error) {
	p.step("starting the fleet once to warm the caches")
	fleet, err := l.up(ctx)
	var ready []float64
	for i := 0; err == nil && i < s.Starts; i++ {
		p.step("starting the fleet: %d of %d", i+1, s.Starts)
		fleet.stop()
		if fleet, err = l.up(ctx); err == nil {
			ready = append(ready, fleet.readyAfter.Seconds())
		}
	}
	return Absolute("up ready", fmt.Sprintf("p50 of %d, s", s.Starts), Quantile(ready, 0.5), maxUpSeconds), fleet, err
}

// fleet measures a fleet that has just started: its idle gateway, then reuse.
func (s Smoke) fleet(ctx context.Context, f *running, p *progress) (idle Row, hits []Row, err error) {
	p.step("leaving the gateway idle for %v", idleFor)
	if err := pause(ctx, idleFor); err != nil {
		return idle, nil, err
	}
	mib, err := residentMiB(f.pid)
	if err != nil {
		return idle, nil, err
	}
	idle = Absolute("idle gateway", "resident MiB", mib, maxIdleMiB)

	encoder, err := encoderURL(ctx, f.url, "encoder-0")
	if err != nil {
		return idle, nil, err
	}
	pictures := make([][]byte, s.Pictures+1)
	for i := range pictures {
		if pictures[i], err = painted(pictureSide, uint64(i)); err != nil {
			return idle, nil, err
		}
	}
	p.step("asking about %d pictures on two Encoders", s.Pictures)
	web := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer web.CloseIdleConnections()
	api := &client.Client{Base: f.url, HTTP: web}
	r := &reuse{
		ask: func(ctx context.Context, encoder int, picture []byte) (client.Answer, error) {
			return api.Ask(ctx, client.Question{Text: "Which colours?", Images: [][]byte{picture},
				MaxTokens: answerLen, Encoder: strconv.Itoa(encoder)}, nil)
		},
		published: func(ctx context.Context, n int) error { return waitPublished(ctx, encoder, n) },
		done:      func(i int) { p.at(i, s.Pictures) },
	}
	t, err := r.run(ctx, pictures)
	return idle, t.rows(maxHitRatio), err
}

// gateway measures what a gateway adds to a request.
func (s Smoke) gateway(ctx context.Context, l launcher, p *progress) ([]Row, error) {
	p.step("posting %d requests with an image of 1 MiB through the gateway and %d without it", s.Pairs, s.Pairs)
	image, err := Noise(imageBytes, 1)
	if err != nil {
		return nil, err
	}
	workers, at, err := l.stubs(ctx)
	if err != nil {
		return nil, err
	}
	defer workers.stop()
	gateway, url, err := l.gateway(ctx, at)
	if err != nil {
		return nil, err
	}
	defer gateway.stop()
	o := newOverhead(url, at, image)
	if _, _, err := o.pairs(ctx, warmPairs, func(int) {}); err != nil {
		return nil, err
	}
	via, direct, err := o.pairs(ctx, s.Pairs, func(i int) { p.at(i, s.Pairs) })
	if err != nil {
		return nil, err
	}
	with, without := Quantile(via, 0.5), Quantile(direct, 0.5)
	return []Row{
		Absolute("gateway overhead", "added to a 1 MiB image, p50 ms", with-without, maxOverheadMS),
		Against("gateway", "1 MiB image, p50 ms", with, "direct calls", without, 0),
	}, nil
}
