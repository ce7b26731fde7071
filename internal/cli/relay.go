// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/vllm"
	"afterimage/internal/vllm/consumer"
	"afterimage/internal/vllm/relay"
)

// relayNames returns the namespace that is configured. Without one it is zero, and keys is where what an Encoder has
// stored is looked for.
func relayNames(cfg config.Config, env []string) (n embedding.Namespace, keys vllm.Keys, err error) {
	own := cfg.Relay
	if own.Model != "" {
		n = embedding.Namespace{Prefix: own.Prefix, Model: own.Model, Revision: own.Revision, Encoder: own.Encoder, Protocol: embedding.V3}
		n.DType, err = embedding.ParseDType(own.DType)
		return n, nil, err
	}
	file, err := config.LoadMooncakeFile(env, func(string) {}) // who joins the cluster tells
	if err != nil && !errors.Is(err, config.ErrNoMooncakeFile) {
		return n, nil, err
	}
	admin := mooncakeAdmin(cfg.Mooncake.Admin, file)
	if admin == "" {
		return n, nil, errors.New("relay.model is empty, so the names under which Encoders store are read off them, and the Mooncake master lists them: " +
			"name its HTTP port (--metrics_port) in mooncake.admin, or the model in relay.model")
	}
	return n, mooncake.NewListing(nil, admin), nil
}

// openRelay returns what brings the Store's embeddings to vLLM workers, nil if that is off. Without a namespace it waits
// for SetNamespace. Parts are closed in reverse: the relay first, the memory last.
func openRelay(ctx context.Context, cfg config.Config, ns embedding.Namespace, p *process, parts *closers) (*relay.Relay, error) {
	own, err := cfg.Relay, error(nil)
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
	shared, err := openRelayStore(ctx, cfg, p, memory, parts)
	if err != nil {
		return nil, err
	}
	consumers := consumer.New(consumer.Config{Logger: p.log})
	parts.add(func() error { consumers.Close(); return nil })
	r, err := relay.New(relay.Config{
		Store: shared, Arena: memory, Namespace: ns, Consumers: consumers, State: path, Metrics: p.registry, Logger: p.log,
	})
	if err != nil {
		return nil, fmt.Errorf("relay.state = %q: %w", path, err)
	}
	parts.add(r.Close)
	if own.Model == "" {
		p.log.Info("relay", "namespace", "to be read off an Encoder", "state", path)
	} else {
		p.log.Info("relay", "namespace", ns.String(), "state", path)
	}
	return r, nil
}

// openRelayStore returns the cluster's Store behind its guard. One that is given up leaves all to the Encoders.
func openRelayStore(ctx context.Context, cfg config.Config, p *process, memory *arena.Arena, parts *closers) (store.Store, error) {
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
	return shared, nil
}
