// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"time"

	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/prefill"
	"afterimage/internal/transport"
)

// prefillCmd runs a prefill worker.
type prefillCmd struct {
	Own    config.Prefill `embed:"" group:"role"`
	Model  config.Model   `embed:"" group:"model"`
	Engine config.Engine  `embed:"" group:"engine"`
	common `embed:""`
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
	if cfg.Model, err = modelOf(cfg.Model, cfg.Engine.Kind, caches()); err != nil {
		return err
	}
	eng, err := openText(cfg)
	if err != nil {
		return err
	}
	parts.add(eng.Close)
	own, spec := cfg.Prefill, eng.Spec()
	memory, err := p.memory("prefill.arena_bytes", own.ArenaBytes, &parts)
	if err != nil {
		return err
	}
	receiver, err := transport.NewReceiver(transport.ReceiverConfig{
		Arena: memory, Listener: p.data, Engine: spec.Engine, Cols: spec.Cols,
		GrantTTL: time.Duration(own.PrepareTimeout), Logger: p.log, Metrics: transport.NewMetrics(p.registry),
	})
	if err != nil {
		return err
	}
	parts.add(receiver.Close)
	worker := prefill.New(prefill.Config{
		Name: p.name, Version: version, Model: cfg.Model.Name, Engine: eng, Receiver: receiver, Protocol: protocol,
		PoolBytes: int64(own.ArenaBytes), MaxBodyBytes: prefillMaxBody, GrantTimeout: grantTimeout,
		PrepareTTL: time.Duration(own.PrepareTimeout), ItemTimeout: time.Duration(own.ItemTimeout),
		MaxWaiting: prefillMaxWaiting, WriteTimeout: writeTimeout, Registry: p.registry, Logger: p.log,
	})
	parts.add(func() error { worker.Close(); return nil })
	mux := p.mux(nil, nil)
	worker.Routes(mux)
	if err := p.ready(shown(worker.Announcement().Model, spec.Modelled)); err != nil {
		return err
	}
	return p.serve(ctx, mux)
}
