// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/engine"
	"afterimage/internal/prefill"
)

// decodeWorkerCmd runs a decode worker.
type decodeWorkerCmd struct {
	Own       config.Decode    `embed:"" group:"role"`
	Model     config.Model     `embed:"" group:"model"`
	Engine    config.Engine    `embed:"" group:"engine"`
	Transport config.Transport `embed:"" prefix:"transport-" group:"transport"`
	Fleet     config.Fleet     `embed:"" prefix:"fleet-" group:"token"`
	common    `embed:""`
}

// Run is called by the parser.
func (c *decodeWorkerCmd) Run(a *app) error {
	at := addresses{http: "decode.listen", data: "decode.data_listen", dataNetwork: "tcp"}
	name := func(cfg *config.Config) string { return cfg.Decode.Name }
	return a.runRole(config.RoleDecode, c.File, name, at, runDecode)
}

// runDecode puts the role together and serves until ctx ends.
func runDecode(ctx context.Context, cfg config.Config, p *process) (err error) {
	var parts closers
	defer func() { err = errors.Join(err, parts.close()) }()
	eng, memory, err := openWorker(&cfg, p, "decode.arena_bytes", cfg.Decode.ArenaBytes, &parts)
	if err != nil {
		return err
	}
	worker, err := newDecode(cfg, p, eng, memory, &parts)
	if err != nil {
		return err
	}
	mux := p.workerMux(new(readiness).err, worker)
	worker.Routes(mux)
	if err := p.ready(shown(worker.Announcement().Model, eng.Spec().Modelled)); err != nil {
		return err
	}
	return p.serveWorker(ctx, mux, worker)
}

// newDecode wires the parts between the engine and the HTTP server.
func newDecode(cfg config.Config, p *process, eng engine.Text, memory *arena.Arena, parts *closers) (*prefill.Prefill, error) {
	spec := eng.Spec()
	receiver, err := newReceiver(cfg, p, rowSpec{spec.Engine, spec.Cols, spec.DType}, memory, nil, parts)
	if err != nil {
		return nil, err
	}
	worker, err := prefill.New(prefill.Config{
		Decode: true, Name: p.name, Version: version, Model: cfg.Model.Name, Engine: eng, Receiver: receiver, Arena: memory,
		Protocol: protocol, PoolBytes: int64(cfg.Decode.ArenaBytes), MaxBodyBytes: prefillMaxBody, GrantTimeout: grantTimeout,
		PrepareTTL: time.Duration(cfg.Prefill.PrepareTimeout), ItemTimeout: time.Duration(cfg.Prefill.ItemTimeout),
		MaxWaiting: prefillMaxWaiting, WriteTimeout: writeTimeout, Registry: p.registry, Logger: p.log,
	})
	if err != nil {
		return nil, err
	}
	parts.add(func() error { worker.Close(); return nil })
	return worker, nil
}

// newHandOff returns what a P/D hands prompts over with; nothing without memory for it.
func newHandOff(cfg config.Config, p *process, spec engine.TextSpec, parts *closers) (over prefill.HandOff, err error) {
	if cfg.Prefill.HandoffBytes == 0 {
		return over, nil
	}
	over.Arena, err = arena.New(arena.Config{Name: "afterimage-" + p.name + "-states", Bytes: int64(cfg.Prefill.HandoffBytes)})
	if err != nil {
		return over, fmt.Errorf("prefill.handoff_bytes: %w", err)
	}
	parts.add(over.Arena.Detach)
	over.Sender, err = newSender(cfg.Transport, p, rowSpec{spec.Engine, spec.Cols, spec.DType}, over.Arena, nil)
	if err != nil {
		return over, err
	}
	parts.add(over.Sender.Close)
	return over, nil
}
