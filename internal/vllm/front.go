// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/admit"
	"afterimage/internal/media"
	"afterimage/internal/proxy"
	"afterimage/internal/tracing"
	"afterimage/internal/vllm/relay"
)

// Config wires a Front.
type Config struct {
	// Static are the instances of a fleet that does not change. With Dynamic there are none: instances
	// register, with AdminKey.
	Static   []Instance
	Dynamic  bool
	AdminKey string

	// Private keeps addresses of instances out of the answer for health, which nobody needs a key for.
	Private bool
	// Token is what workers ask for, as with vLLM's --api-key; "" sends none.
	Token string

	Routing   Routing
	NoRewrite bool // media go to the consumer as they are
	// MaxBatch is how many images one encode call may have; 0 is no limit.
	MaxBatch int
	// DecodeRetries is how often a request is encoded and sent again when decode answers 500.
	DecodeRetries int
	// Failovers is how often a call that did not come to an answer is made to another instance.
	Failovers int
	// ShortNames sends an Encoder that holds an image only the image's name.
	ShortNames bool

	Registry                    RegistryConfig
	ProbeInterval, ProbeTimeout time.Duration // an interval of 0 probes nothing
	// KeepAlive is how long the workers' servers keep an idle connection; negative or 0: not at all.
	KeepAlive time.Duration

	Body     proxy.BodyLimits
	MaxMedia int
	// Fetcher gets media behind http and https URLs, which then travel as data URLs; nil leaves fetching, and
	// every other kind of URL, to the workers.
	Fetcher *media.Fetcher
	// Revisits remembers what URLs gave, with the bytes: workers are sent those. Nil remembers nothing.
	Revisits      *media.Revisits
	MaxFetchBytes int64 // of one request together
	// Fetched bounds what all requests in work have fetched; nil stands for 1 GiB.
	Fetched *media.Budget

	// Relay brings what the Store has to consumers, so that Encoders are not asked for it; nil leaves all to them. It
	// is the caller's to close.
	Relay *relay.Relay
	// Keys is asked where an Encoder stores, for the Relay to know; nil if that knows it.
	Keys Keys

	WriteTimeout time.Duration // of each write to the client
	LogRequests  bool
	Tracer       *tracing.Tracer // nil records no spans
	Metrics      prometheus.Registerer
	Logger       *slog.Logger
}

// Front serves the API in front of vLLM workers. All methods may be called from any goroutine.
type Front struct {
	cfg      Config
	reg      *Registry
	client   *http.Client
	held     *held
	names    *names
	sizes    sizes
	metrics  *metrics
	statics  bool
	probing  sync.WaitGroup
	identify func() string // makes a transfer id

	arrivals *arrivals // Encoders that may be other processes than before; nil where nobody asks for them
}

// New returns a Front with its static instances in service; Start begins to probe.
func New(cfg Config) (*Front, error) {
	if cfg.Fetched == nil {
		cfg.Fetched = media.NewBudget(1 << 30)
	}
	if cfg.Revisits == nil {
		cfg.Revisits = media.NewRevisits(cfg.Fetcher, 0, 0)
	}
	if cfg.Fetcher != nil {
		cfg.Revisits.Register(cfg.Metrics)
	}
	f := &Front{
		cfg: cfg, reg: NewRegistry(cfg.Registry), client: admit.WithToken(proxy.NewClient(idleFor(cfg.KeepAlive)), cfg.Token), held: newHeld(), names: newNames(),
		metrics: newMetrics(cfg.Metrics, cfg.Fetched), statics: !cfg.Dynamic,
		identify: func() string { return proxy.RandomHex(16) },
	}
	if cfg.Relay != nil && cfg.Keys != nil {
		f.arrivals = newArrivals()
	}
	for _, i := range cfg.Static {
		if _, err := f.reg.Register(i); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// idleFor returns how long connections are kept for the next call: half as long as the workers' servers keep
// them, so that none is used that is being closed there. It is negative if none is kept.
func idleFor(keepAlive time.Duration) time.Duration {
	if keepAlive <= 0 {
		return -1
	}
	return keepAlive / 2
}

// Start probes the instances, and finds out what the Relay has to know, until ctx ends.
func (f *Front) Start(ctx context.Context) {
	if f.arrivals != nil {
		f.probing.Go(func() { f.discover(ctx) })
	}
	if f.cfg.ProbeInterval <= 0 {
		return
	}
	f.probing.Go(func() {
		tick := time.NewTicker(f.cfg.ProbeInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f.probeAll(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
}

// Close waits for what Start began, whose context must have ended, and drops idle connections. No request may be in
// work.
func (f *Front) Close() {
	f.probing.Wait()
	f.client.CloseIdleConnections()
}

// Routes mounts the API.
func (f *Front) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST "+pathChat, f.answer)
	mux.HandleFunc("POST "+pathText, f.answer)
	mux.HandleFunc("GET /v1/models", f.serveModels)
	mux.HandleFunc("POST /start_profile", f.serveProfile("start"))
	mux.HandleFunc("POST /stop_profile", f.serveProfile("stop"))
	if f.cfg.Dynamic {
		mux.HandleFunc("GET /instances", f.serveInstances)
		mux.HandleFunc("POST /instances", f.admin(f.serveRegister))
		mux.HandleFunc("DELETE /instances", f.admin(f.serveUnregister))
	}
	mux.HandleFunc("/", proxy.Unrouted(mux))
}
