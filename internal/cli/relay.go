// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/vllm/consumer"
	"afterimage/internal/vllm/relay"
)

// openRelay returns what brings the Store's embeddings to vLLM workers, nil if that is off. Parts are closed in
// reverse: the relay first, the memory last.
func openRelay(ctx context.Context, cfg config.Config, p *process, parts *closers) (*relay.Relay, error) {
	own := cfg.Relay
	if !own.Enabled {
		return nil, nil
	}
	ns := embedding.Namespace{Prefix: own.Prefix, Model: own.Model, Revision: own.Revision, Encoder: own.Encoder, Protocol: embedding.V3}
	var err error
	if ns.DType, err = embedding.ParseDType(own.DType); err != nil {
		return nil, err
	}
	path := own.State
	if path == "" {
		if path, err = config.RelayState(p.env, port(p.http.Addr().String())); err != nil {
			return nil, fmt.Errorf("relay.state: %w", err)
		}
	}
	memory, err := p.memory("relay.memory_bytes", own.MemoryBytes, parts)
	if err != nil {
		return nil, err
	}
	client, err := openMooncake(ctx, cfg, p, memory, parts)
	if err != nil {
		return nil, err
	}
	shared, err := store.NewGuard(store.GuardConfig{
		Store: client, Arena: memory, Logger: p.log,
		Unready: func(reason string) {
			p.log.Error("relay: the Store is given up, Encoders are asked for everything", "cause", reason)
		},
	})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	parts.add(shared.Close)
	p.registry.MustRegister(shared.Collectors()...)
	consumers := consumer.New(consumer.Config{Logger: p.log})
	parts.add(func() error { consumers.Close(); return nil })
	r, err := relay.New(relay.Config{
		Store: shared, Arena: memory, Namespace: ns, Consumers: consumers, State: path, Metrics: p.registry, Logger: p.log,
	})
	if err != nil {
		return nil, fmt.Errorf("relay.state = %q: %w", path, err)
	}
	parts.add(r.Close)
	p.log.Info("relay", "namespace", ns.String(), "state", path)
	return r, nil
}
