// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// TLSFiles names what mutual TLS needs, in PEM files. Both sides show a certificate and check the
// other's.
type TLSFiles struct {
	Cert, Key string // this worker's certificate, with intermediates, and its private key
	CA        string // certificates of the authorities that the peer's must come from
	// Name is the DNS name that receivers' certificates carry; empty takes the host of the address that
	// is dialled.
	Name string
}

// Load reads the files into a configuration that serves a Receiver as well as a Sender. It returns nil
// when no file is named. An error names the file that cannot be used.
func (f TLSFiles) Load() (*tls.Config, error) {
	if f.Cert == "" && f.Key == "" && f.CA == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("transport: certificate %q with key %q: %w", f.Cert, f.Key, err)
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("transport: authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("transport: authorities: no certificate in %q", f.CA)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13, ServerName: f.Name,
	}, nil
}

// tlsFor returns the configuration for a receiver.
func (s *sender) tlsFor(address string) *tls.Config {
	cfg := s.cfg.TLS
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(address) // an address that is none was not dialled
	}
	return cfg
}

// fitsTLS makes an error of the handshake one of peers that do not fit: no retry mends a certificate.
func fitsTLS(err error) error {
	if err == nil {
		return nil
	}
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var cert *tls.CertificateVerificationError
	if errors.As(err, &record) || errors.As(err, &alert) || errors.As(err, &cert) {
		return fmt.Errorf("%w: TLS: %w", ErrRefused, err)
	}
	return err
}
