// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/engine"
	"afterimage/internal/transport"
)

// newSender returns what delivers to P/Ds.
func newSender(cfg config.Transport, p *process, spec engine.EncoderSpec, memory *arena.Arena) (transport.Sender, error) {
	tls, err := tlsFiles(cfg).Load()
	if err != nil {
		return nil, err
	}
	own := transport.SenderConfig{
		Engine: spec.Engine, Cols: spec.Cols, DType: spec.DType, Version: version, TLS: tls,
		Logger: p.log, Metrics: transport.NewMetrics(p.registry),
	}
	if cfg.Loans {
		own.Arena = memory
	}
	return transport.NewSender(own)
}

// tlsFiles are those of the data connections.
func tlsFiles(cfg config.Transport) transport.TLSFiles {
	return transport.TLSFiles{Cert: cfg.TLSCert, Key: cfg.TLSKey, CA: cfg.TLSCA, Name: cfg.TLSName}
}
