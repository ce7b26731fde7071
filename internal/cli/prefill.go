// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/prefill"
	"afterimage/internal/publish"
)

// prefillCmd runs a prefill worker.
type prefillCmd struct {
	Own       config.Prefill   `embed:"" group:"role"`
	Model     config.Model     `embed:"" group:"model"`
	Engine    config.Engine    `embed:"" group:"engine"`
	Delivery  config.Delivery  `embed:"" group:"delivery"`
	Transport config.Transport `embed:"" prefix:"transport-" group:"transport"`
	Store     config.Store     `embed:"" prefix:"store-" group:"store"`
	Mooncake  config.Mooncake  `embed:"" prefix:"mooncake-" group:"store"`
	Fleet     config.Fleet     `embed:"" prefix:"fleet-" group:"token"`
	common    `embed:""`
}

// Run is called by the parser.
func (c *prefillCmd) Run(a *app) error {
	at := addresses{http: "prefill.listen", data: "prefill.data_listen", dataNetwork: "tcp"}
	name := func(cfg *config.Config) string { return cfg.Prefill.Name }
	return a.runRole(config.RolePrefill, c.File, name, at, runPrefill)
}

// Limits of a prefill worker.
const (
	prefillMaxBody    = 64 << 20
	prefillMaxWaiting = 256
	grantTimeout      = 20 * time.Second
	writeTimeout      = 30 * time.Second
)

// runPrefill puts the role together and serves until ctx ends.
func runPrefill(ctx context.Context, cfg config.Config, p *process) (err error) {
	if err := embedding.SelfCheck(); err != nil {
		return err
	}
	var parts closers
	defer func() { err = errors.Join(err, parts.close()) }()
	eng, memory, err := openWorker(&cfg, p, "prefill.arena_bytes", cfg.Prefill.ArenaBytes, &parts)
	if err != nil {
		return err
	}
	var state readiness
	worker, err := newPrefill(ctx, cfg, p, eng, memory, &state, &parts)
	if err != nil {
		return err
	}
	mux := p.workerMux(state.err, worker)
	worker.Routes(mux)
	if err := p.ready(shown(worker.Announcement().Model, eng.Spec().Modelled)); err != nil {
		return err
	}
	return p.serveWorker(ctx, mux, worker)
}

// openWorker opens what every worker with a text model has: the model, which it fills in in cfg, and memory of the size
// that key names.
func openWorker(cfg *config.Config, p *process, key string, bytes config.Bytes, parts *closers) (engine.Text, *arena.Arena, error) {
	var err error
	if cfg.Model, err = modelOf(cfg.Model, cfg.Engine.Kind, caches()); err != nil {
		return nil, nil, err
	}
	eng, err := openText(*cfg)
	if err != nil {
		return nil, nil, err
	}
	parts.add(eng.Close)
	p.computesWith(eng.Spec().Backend)
	memory, err := p.memory(key, bytes, parts)
	return eng, memory, err
}

// newPrefill wires the parts between the engine and the HTTP server. The residents leave before the Store
// that they may be on loan from.
func newPrefill(ctx context.Context, cfg config.Config, p *process, eng engine.Text, memory *arena.Arena, state *readiness, parts *closers) (*prefill.Prefill, error) {
	own, spec := cfg.Prefill, eng.Spec()
	shared, err := dialStore(ctx, cfg, storeLink{
		socket: own.Store, off: cfg.Delivery.Mode == config.DeliveryP2P || !cfg.Encoder.CrossEncoderCache,
	}, p, memory, state, parts)
	if err != nil {
		return nil, err
	}
	kept := cache.NewWith(cache.Config{MaxBytes: int64(own.ResidentBytes), Arena: memory})
	parts.add(func() error { kept.Close(); return nil })
	residents := &prefill.Residents{Cache: kept}
	receiver, err := newReceiver(cfg, p, rowSpec{spec.Engine, spec.Cols, spec.DType}, memory, residents.Evict, parts)
	if err != nil {
		return nil, err
	}
	handOff, err := publish.New(publish.Config{Store: shared, Protocol: protocol, TTL: time.Duration(cfg.Store.TTL), Logger: p.log})
	if err != nil {
		return nil, err
	}
	parts.add(func() error { return handOff.Close(context.Background()) }) // it has nothing queued
	over, err := newHandOff(cfg, p, spec, parts)
	if err != nil {
		return nil, err
	}
	worker, err := prefill.New(prefill.Config{
		HandOff: over,
		Name:    p.name, Version: version, Model: cfg.Model.Name, Engine: eng, Receiver: receiver, Protocol: protocol,
		Arena: memory, Residents: residents, Store: shared, Publisher: handOff,
		PoolBytes: int64(own.ArenaBytes), MaxBodyBytes: prefillMaxBody, GrantTimeout: grantTimeout,
		PrepareTTL: time.Duration(own.PrepareTimeout), ItemTimeout: time.Duration(own.ItemTimeout),
		StepTokens: own.StepTokens, MaxWaiting: prefillMaxWaiting, WriteTimeout: writeTimeout, Registry: p.registry, Logger: p.log,
	})
	if err != nil {
		return nil, err
	}
	parts.add(func() error { worker.Close(); return nil })
	return worker, nil
}
