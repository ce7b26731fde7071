// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/admit"
	"afterimage/internal/control"
	"afterimage/internal/media"
	"afterimage/internal/proxy"
	"afterimage/internal/store"
	"afterimage/internal/tracing"
)

// Config wires a gateway.
type Config struct {
	Version  string
	Encoders []string // base URLs
	Prefills []string // base URLs
	Decodes  []string // base URLs; those of decode workers, which give the answers where there are any
	// Token is what workers ask for; "" sends none.
	Token string

	MaxBodyBytes int64
	// BodyGrace is how long a body may take to come to a decent pace (64 KiB/s); 0 stands for 10 s.
	BodyGrace time.Duration
	MaxImages int
	// MaxRequestImageBytes bounds the files of one request together, fetched ones included; 0 stands
	// for MaxBodyBytes.
	MaxRequestImageBytes int64
	Limits               media.Limits // of one image
	Fetcher              *media.Fetcher
	// Revisits remembers what URLs gave; nil remembers nothing.
	Revisits *media.Revisits
	// Fetched bounds the files that all requests in work have fetched; nil stands for 1 GiB.
	Fetched *media.Budget

	// Routing is how workers are chosen; "" is Affinity.
	Routing Routing
	// LogRequests adds parameters to the line that is logged of each request.
	LogRequests bool
	// Thumbnails has small pictures made of images, for the page.
	Thumbnails bool
	// NoOverlap has P/D begin only when all embeddings are there, to measure what beginning earlier brings.
	NoOverlap bool
	// Repairs is how often an attempt is repeated when a worker fails or lacks an item.
	Repairs int
	// ProbeEvery and ProbeTimeout pace the questions to workers.
	ProbeEvery, ProbeTimeout time.Duration
	// SilenceLimit is how long a worker that holds a call may answer no probe and send nothing before the
	// call is cut. It is felt at the first probe that fails after it; 0 cuts none.
	SilenceLimit time.Duration
	// PrepareTimeout bounds a prepare call and a question for geometry, EncodeTimeout an encode call.
	PrepareTimeout, EncodeTimeout time.Duration
	// WriteTimeout bounds each write to the client, never a whole answer.
	WriteTimeout time.Duration

	// Events streams what the shared Store stores and loses; nil is unknown.
	Events func(context.Context) <-chan store.Event

	Tracer   *tracing.Tracer // nil records no spans
	Registry prometheus.Registerer
	Logger   *slog.Logger
}

// Gateway serves the OpenAI API. All methods may be called from any goroutine.
type Gateway struct {
	cfg      Config
	fleet    *fleet
	client   *http.Client
	geo      *geometry
	traces   *traces
	flights  *flights
	metrics  *metrics
	stored   *stored
	seen     *seen
	choose   *chooser
	outliers *outliers
	// thumbnails is nil without Config.Thumbnails.
	thumbnails *thumbnails
	// background holds calls that nobody waits for but Close.
	background sync.WaitGroup
}

// workerIdle is how long a connection to a worker is kept for the next call; workers keep it for 2 minutes.
const workerIdle = 30 * time.Second

// New returns a gateway that knows no worker yet; Start begins to probe.
func New(cfg Config) *Gateway {
	cfg.MaxRequestImageBytes = cmp.Or(cfg.MaxRequestImageBytes, cfg.MaxBodyBytes)
	if cfg.Fetched == nil {
		cfg.Fetched = media.NewBudget(1 << 30)
	}
	if cfg.Revisits == nil {
		cfg.Revisits = media.NewRevisits(cfg.Fetcher, 0, 0)
	}
	cfg.Revisits.Register(cfg.Registry)
	client := admit.WithToken(proxy.NewClient(workerIdle), cfg.Token)
	m := newMetrics(cfg.Registry, cfg.Fetched)
	g := &Gateway{
		cfg: cfg, client: client, fleet: newFleet(cfg, client), geo: newGeometry(),
		traces: newTraces(1024), flights: newFlights(), metrics: m, stored: newStored(cfg.Registry), seen: newSeen(),
		choose: newChooser(cfg.Routing, m.Chosen), outliers: newOutliers(cfg.Registry, cfg.Logger),
	}
	cfg.Registry.MustRegister(workersCollector{g.fleet})
	if cfg.Thumbnails {
		g.thumbnails = newThumbnails()
	}
	return g
}

// Start probes the workers, and follows the Store, until ctx ends.
func (g *Gateway) Start(ctx context.Context) {
	g.fleet.start(ctx)
	g.watchStore(ctx)
	if g.thumbnails != nil {
		g.background.Go(func() { g.thumbnails.run(ctx) })
	}
}

// Close waits for the probes, whose context must have ended, and for what requests left to do in the
// background, then drops idle connections. No request may be in work.
func (g *Gateway) Close() {
	g.fleet.wg.Wait()
	g.background.Wait()
	g.client.CloseIdleConnections()
}

// bodyLimits bound the bodies of clients.
func (g *Gateway) bodyLimits() proxy.BodyLimits {
	return proxy.BodyLimits{MaxBytes: g.cfg.MaxBodyBytes, Grace: g.cfg.BodyGrace}
}

// Ready says whether a request with an image could be served, and if not, why.
// Everybody may read it, so addresses are not in it.
func (g *Gateway) Ready() error {
	err := g.fleet.snapshot().ready()
	if err == nil {
		return nil
	}
	return errors.New(proxy.WithoutAddresses(err.Error()))
}

// Routes mounts the client's API, and answers for every path that mux has no handler for.
func (g *Gateway) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST "+control.PathChat, g.serveChat)
	mux.HandleFunc("POST "+control.PathText, g.serveText)
	mux.HandleFunc("POST "+control.PathWarm, g.serveWarm)
	mux.HandleFunc("GET /v1/models", g.serveModels)
	mux.HandleFunc("GET /v1/fleet", g.serveFleet)
	mux.HandleFunc("GET /v1/thumbnails/{identifier}", g.serveThumbnail)
	mux.HandleFunc("GET "+control.PathTraces+"/{trace}", g.serveTrace)
	mux.HandleFunc("/", proxy.Unrouted(mux))
}
