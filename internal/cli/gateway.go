// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/gateway"
	"afterimage/internal/media"
	"afterimage/internal/quick"
	"afterimage/internal/store"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/store/ram"
)

// gatewayCmd runs a gateway.
type gatewayCmd struct {
	Own      config.Gateway  `embed:"" group:"role"`
	Delivery config.Delivery `embed:"" group:"delivery"`
	Media    config.Media    `embed:"" group:"media"`
	VLLM     config.VLLM     `embed:"" group:"vllm"`
	Relay    config.Relay    `embed:"" group:"relay"`
	Client   string          `name:"mooncake-client" key:"mooncake.client" placeholder:"HOST:PORT" group:"relay" help:"Where this host's mooncake_client takes calls, with --relay."`
	Admin    string          `name:"mooncake-admin" key:"mooncake.admin" placeholder:"HOST:PORT" group:"store" help:"The HTTP port of a Mooncake master. The gateway asks it what the cluster stores, and shares images that it has among Encoders by load; with --relay, under which names vLLM's Encoders store."`
	Fleet    config.Fleet    `embed:"" prefix:"fleet-" group:"token"`
	common   `embed:""`
}

// Run is called by the parser.
func (c *gatewayCmd) Run(a *app) error {
	at := addresses{http: "gateway.listen"}
	name := func(*config.Config) string { return "gateway" }
	return a.runRole(config.RoleGateway, c.File, name, at, runGateway)
}

// How a gateway deals with its workers.
const (
	probeEvery     = 500 * time.Millisecond
	probeTimeout   = 2 * time.Second
	prepareTimeout = 25 * time.Second // above a P/D's own wait for memory
	encodeTimeout  = 120 * time.Second
)

// runGateway puts the role together and serves until ctx ends.
func runGateway(ctx context.Context, cfg config.Config, p *process) error {
	if cfg.VLLM.Fronts() {
		return runVLLMFront(ctx, cfg, p)
	}
	if err := embedding.SelfCheck(); err != nil {
		return err
	}
	own := cfg.Gateway
	token, err := gatewayToken(cfg.Fleet)
	if err != nil {
		return err
	}
	door, shut, err := newDoor(own, p)
	if err != nil {
		return err
	}
	defer shut()
	limits := mediaLimits(cfg.Media)
	fetcher := newFetcher(own, limits.MaxBytes)
	g := gateway.New(gatewayConfig(cfg, p, token, limits, fetcher))
	probes, stop := context.WithCancel(context.Background())
	g.Start(probes)
	out := &exit{p: p, notice: time.Duration(own.DrainNotice)}
	mux := p.mux(out.unless(g.Ready), nil)
	g.Routes(mux)
	if own.Dashboard {
		defer serveDashboard(mux, g, cfg, p)()
	}
	err = p.ready("")
	if err == nil {
		err = out.serve(ctx, door.Wrap(mux))
	}
	stop()
	g.Close()
	fetcher.Close()
	return err
}

// gatewayConfig is the configuration of the role.
func gatewayConfig(cfg config.Config, p *process, token string, limits media.Limits, fetcher *media.Fetcher) gateway.Config {
	own := cfg.Gateway
	return gateway.Config{
		Version: version, Token: token, Encoders: own.Encoders, Prefills: own.Prefills, Decodes: own.Decodes,
		MaxBodyBytes: int64(own.MaxBodyBytes), MaxImages: own.MaxImages, Limits: limits,
		Fetcher: fetcher, Revisits: newRevisits(own, fetcher), Fetched: media.NewBudget(int64(own.FetchBudget)),
		Routing: gateway.Routing(own.Routing), NoOverlap: !cfg.Delivery.Overlap, Repairs: own.Repairs,
		LogRequests: own.LogRequests, Thumbnails: own.Dashboard && own.DashboardThumbnails,
		ProbeEvery: probeEvery, ProbeTimeout: probeTimeout, SilenceLimit: time.Duration(own.SilenceLimit),
		PrepareTimeout: prepareTimeout, EncodeTimeout: encodeTimeout, WriteTimeout: writeTimeout,
		Events: storeEvents(cfg, p), Tracer: p.tracer, Registry: p.registry, Logger: p.log,
	}
}

// gatewayToken returns what a gateway shows to workers.
func gatewayToken(f config.Fleet) (string, error) {
	tokens, err := f.Tokens()
	if len(tokens) == 0 {
		return "", err
	}
	return tokens[0], err
}

// asleep is how a gateway waits for the Store: no request does, so no core need stay awake for it.
var asleep = quick.NewPolicy(0)

// storeEvents returns what tells of the Store's objects: its own events where its socket is named, the cluster's lists
// where its master is; else nil.
func storeEvents(cfg config.Config, p *process) func(context.Context) <-chan store.Event {
	switch {
	case cfg.Gateway.Store != "":
		return func(ctx context.Context) <-chan store.Event {
			c, err := ram.Dial(ctx, ram.ClientConfig{Path: cfg.Gateway.Store, Polls: asleep})
			if err != nil {
				p.log.Warn("what the Store has stays unknown", "err", err)
				return nil
			}
			context.AfterFunc(ctx, func() { c.Close() })
			return c.Follow(ctx)
		}
	case cfg.Mooncake.Admin != "":
		return func(ctx context.Context) <-chan store.Event {
			return mooncake.Watch(ctx, mooncake.WatchConfig{Admin: cfg.Mooncake.Admin, Every: time.Duration(cfg.Mooncake.ListEvery), Logger: p.log})
		}
	}
	return nil
}

// newFetcher returns what gets media behind URLs, of at most maxBytes each.
func newFetcher(own config.Gateway, maxBytes int64) *media.Fetcher {
	allow, _ := media.ParseHosts(own.FetchAllow) // both were checked
	deny, _ := media.ParseHosts(own.FetchDeny)
	return media.NewFetcher(media.FetcherConfig{
		AllowPrivate: own.AllowPrivateURLs, Allow: allow, Deny: deny, AllowPorts: own.FetchPorts, MaxBytes: maxBytes, Timeout: time.Duration(own.FetchTimeout),
		UserAgent: "afterimage/" + version + " (+vision model server)",
	})
}

// newRevisits returns what remembers of fetches.
func newRevisits(own config.Gateway, f *media.Fetcher) *media.Revisits {
	return media.NewRevisits(f, own.RevisitEntries, int64(own.RevisitBytes))
}
