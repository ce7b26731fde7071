// SPDX-License-Identifier: Apache-2.0

package cli

import (
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
