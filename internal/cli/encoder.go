// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/encoder"
	"afterimage/internal/engine"
	"afterimage/internal/engine/device"
	"afterimage/internal/media"
	"afterimage/internal/publish"
	"afterimage/internal/resolve"
	"afterimage/internal/store"
	"afterimage/internal/transport"
)

// encoderCmd runs an Encoder.
type encoderCmd struct {
	Own       config.Encoder   `embed:"" group:"role"`
	Model     config.Model     `embed:"" group:"model"`
	Engine    config.Engine    `embed:"" group:"engine"`
	Media     config.Media     `embed:"" group:"media"`
	Store     config.Store     `embed:"" prefix:"store-" group:"store"`
	Mooncake  config.Mooncake  `embed:"" prefix:"mooncake-" group:"store"`
	Transport config.Transport `embed:"" prefix:"transport-" group:"transport"`
	Fleet     config.Fleet     `embed:"" prefix:"fleet-" group:"token"`
	common    `embed:""`
}

// Run is called by the parser.
func (c *encoderCmd) Run(a *app) error {
	at := addresses{http: "encoder.listen"}
	name := func(cfg *config.Config) string { return cfg.Encoder.Name }
	return a.runRole(config.RoleEncoder, c.File, name, at, runEncoder)
}

// Limits of an encode call. The gateway's own are at most these; they keep a stranger's call small.
const (
	encodeMaxItems     = 64
	encodeMaxBytes     = 512 << 20
	encodeMaxQueue     = 256
	deliverTimeout     = 20 * time.Second
	publishDrainOnStop = time.Second
)

// decodeBytesPerPixel is the most that decoding holds for one pixel: 16-bit colour, upright and turned,
// and the result.
const decodeBytesPerPixel = 18

// mediaLimits are the limits of one picture, and a decode budget that fits the largest.
func mediaLimits(m config.Media) media.Limits {
	l := media.DefaultLimits()
	l.MaxBytes, l.MaxPixels = int64(m.MaxImageBytes), m.MaxImagePixels
	l.DecodeBudgetBytes = max(l.DecodeBudgetBytes, decodeBytesPerPixel*int64(m.MaxImagePixels))
	return l
}

// runEncoder puts the role together and serves until ctx ends.
func runEncoder(ctx context.Context, cfg config.Config, p *process) (err error) {
	if err := embedding.SelfCheck(); err != nil {
		return err
	}
	var parts closers
	defer func() { err = errors.Join(err, parts.close()) }()
	if cfg.Model, err = modelOf(cfg.Model, cfg.Engine.Kind, caches()); err != nil {
		return err
	}
	eng, err := openEncoder(cfg)
	if err != nil {
		return err
	}
	parts.add(eng.Close)
	p.computesWith(eng.Spec().Backend)
	if modelled, ok := eng.(*device.Encoder); ok {
		p.registry.MustRegister(modelled.Collector())
	}
	memory, err := p.memory("encoder.arena_bytes", cfg.Encoder.ArenaBytes, &parts)
	if err != nil {
		return err
	}
	var state readiness
	e, err := newEncoder(ctx, cfg, p, eng, memory, &state, &parts)
	if err != nil {
		return err
	}
	mux := p.workerMux(state.err, e)
	e.Routes(mux)
	if err := p.ready(shown(e.Announcement().Model, eng.Spec().Modelled)); err != nil {
		return err
	}
	return p.serveWorker(ctx, mux, e)
}

// newEncoder wires the parts between the engine and the HTTP server. Parts are closed in reverse: the
// publisher first, the memory last.
func newEncoder(ctx context.Context, cfg config.Config, p *process, eng engine.Encoder, memory *arena.Arena, state *readiness, parts *closers) (*encoder.Encoder, error) {
	spec, own := eng.Spec(), cfg.Encoder
	local := cache.NewWith(cache.Config{MaxBytes: int64(own.CacheBytes), Arena: memory})
	parts.add(func() error { local.Close(); return nil })
	ns, naming, err := namesOf(cfg, spec)
	if err != nil {
		return nil, err
	}
	shared, err := dialStore(ctx, cfg, storeLink{
		socket: own.Store, off: !own.CrossEncoderCache, onUnconfirmed: own.OnUnconfirmed,
	}, p, memory, state, parts)
	if err != nil {
		return nil, err
	}
	publisher, err := newPublisher(cfg, shared, ns.Protocol, p.log, parts)
	if err != nil {
		return nil, err
	}
	resolver, err := resolve.New(resolve.Config{
		Cache: local, Store: shared, Protocol: ns.Protocol, KeepWrong: naming != nil, ReadBufferBytes: int64(own.StoreReadBufferBytes),
		Reap: publisher.Err, Sighted: publisher.Sighted, ReadOrRecompute: own.ReadOrRecompute, Hedge: own.Hedge, Logger: p.log,
	})
	if err != nil {
		return nil, err
	}
	parts.add(func() error { resolver.Wait(); return nil })
	sender, err := newSender(cfg.Transport, p, rowSpec{spec.Engine, spec.Cols, spec.DType}, memory, transport.NewMetrics(p.registry))
	if err != nil {
		return nil, err
	}
	parts.add(sender.Close)
	p.registry.MustRegister(resolver.Metrics(), publisher.Metrics())
	return encoder.New(encoder.Config{
		Name: p.name, Version: version, Model: cfg.Model.Name, Engine: eng,
		Namespace: ns, VLLM: naming,
		Arena: memory, Cache: local, Resolver: resolver, Publisher: publisher, Sender: sender,
		Limits: mediaLimits(cfg.Media), MaxItems: encodeMaxItems, MaxBodyBytes: encodeMaxBytes, MaxQueue: encodeMaxQueue,
		DeliverTimeout: deliverTimeout, Registry: p.registry, Logger: p.log,
	})
}

// newPublisher returns what shows the Store what was encoded. On stop it has a moment for what is queued.
func newPublisher(cfg config.Config, shared store.Store, protocol embedding.Protocol, log *slog.Logger, parts *closers) (*publish.Publisher, error) {
	own := cfg.Encoder
	publisher, err := publish.New(publish.Config{
		Store: shared, Protocol: protocol, Admission: publish.Admission(own.Admission), MaxPendingItems: own.StoreMaxPendingItems,
		MaxPendingBytes: int64(own.StoreMaxPendingBytes), TTL: time.Duration(cfg.Store.TTL), Logger: log,
	})
	if err != nil {
		return nil, err
	}
	parts.add(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), publishDrainOnStop)
		defer cancel()
		return publisher.Close(ctx)
	})
	return publisher, nil
}

// namesOf returns how objects are named, and with v3 how vLLM names pictures.
func namesOf(cfg config.Config, spec engine.EncoderSpec) (embedding.Namespace, *embedding.VLLMNaming, error) {
	own := cfg.Encoder
	ns := embedding.Namespace{
		Prefix: own.EmbeddingCachePrefix, Model: cmp.Or(own.EmbeddingModelIdentity, cfg.Model.Name, spec.Model),
		Revision: cfg.Model.Revision, Encoder: spec.Fingerprint, DType: spec.DType, Protocol: protocol,
	}
	if own.Protocol != config.ProtocolV3 {
		return ns, nil, nil
	}
	var err error
	if ns.DType, err = embedding.ParseDType(own.VLLMDType); err != nil {
		return ns, nil, err
	}
	ns.Model, ns.Encoder, ns.Protocol = cmp.Or(own.EmbeddingModelIdentity, own.VLLMModel), own.VLLMEncoder, embedding.V3
	return ns, &embedding.VLLMNaming{Model: own.VLLMModel, Hash: own.VLLMHash}, nil
}
