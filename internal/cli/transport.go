// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/transport"
)

// newSender returns what delivers rows to P/Ds, or states of prompts to decode workers. Without metrics it shows none:
// a process has one set.
func newSender(cfg config.Transport, p *process, spec rowSpec, memory *arena.Arena, m *transport.Metrics) (transport.Sender, error) {
	tls, err := tlsFiles(cfg).Load()
	if err != nil {
		return nil, err
	}
	own := transport.SenderConfig{
		Engine: spec.Engine, Cols: spec.Cols, DType: spec.DType, Version: version, TLS: tls,
		Polls: p.polls, Logger: p.log, Metrics: m,
	}
	if cfg.Loans {
		own.Arena = memory
	}
	return transport.NewSender(own)
}

// newReceiver returns what takes rows or states into memory, where evict makes room; with nil nothing does. Parts close it.
func newReceiver(cfg config.Config, p *process, spec rowSpec, memory *arena.Arena, evict func(bytes int64) (freed int64), parts *closers) (transport.Receiver, error) {
	tls, err := tlsFiles(cfg.Transport).Load()
	if err != nil {
		return nil, err
	}
	receiver, err := transport.NewReceiver(transport.ReceiverConfig{
		Arena: memory, Evict: evict, Listener: p.data, Local: cfg.Transport.Loans, TLS: tls,
		Engine: spec.Engine, Cols: spec.Cols, DType: spec.DType, Version: version,
		GrantTTL: time.Duration(cfg.Prefill.PrepareTimeout), Logger: p.log, Metrics: transport.NewMetrics(p.registry),
	})
	if err != nil {
		return nil, err
	}
	parts.add(receiver.Close)
	return receiver, nil
}

// rowSpec is what both ends of a data connection must have in common.
type rowSpec struct {
	Engine string
	Cols   int
	DType  embedding.DType
}

// tlsFiles are those of the data connections.
func tlsFiles(cfg config.Transport) transport.TLSFiles {
	return transport.TLSFiles{Cert: cfg.TLSCert, Key: cfg.TLSKey, CA: cfg.TLSCA, Name: cfg.TLSName}
}
