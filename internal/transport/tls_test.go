// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates for tests.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = a.sign("ca", tmpl, nil, nil)
	return a
}

// sign writes NAME.pem and NAME.key.
func (a *authority) sign(name string, tmpl, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if parent == nil {
		parent, by = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", secret)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	b := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(filepath.Join(a.dir, name), b, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// worker returns the configuration of a worker at 127.0.0.1.
func (a *authority) worker(name string) *tls.Config {
	a.t.Helper()
	a.sign(name, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"workers.test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	at := func(name string) string { return filepath.Join(a.dir, name) }
	cfg, err := TLSFiles{Cert: at(name + ".pem"), Key: at(name + ".key"), CA: at("ca.pem")}.Load()
	if err != nil {
		a.t.Fatal(err)
	}
	return cfg
}

// TestTLS delivers over TLS with certificates of one authority, and refuses all else, on the side that
// can tell and by name.
func TestTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	w := newWorld(t, 4, func(c *ReceiverConfig) {
		c.Listener, c.Address, c.TLS = nil, "127.0.0.1:0", ours.worker("p")
	})
	w.pipe = nil
	f := func(name string, cfg *tls.Config, fault string) {
		t.Helper()
		s := w.sender(func(c *SenderConfig) { c.TLS = cfg })
		tk := w.grant(want(name))[0]
		buf := w.buf(object(t, name))
		defer buf.Release()
		err := s.Send(t.Context(), tk.Grant(), buf)
		switch {
		case fault == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case fault == "":
			w.wantObject(tk, object(t, name))
		case !errors.Is(err, ErrRefused) && !errors.Is(err, ErrPeer), !strings.Contains(err.Error(), fault):
			t.Errorf("%s: got %v, want %q", name, err, fault)
		}
		tk.Cancel()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	named := ours.worker("named")
	named.ServerName = "workers.test"
	misnamed := ours.worker("misnamed")
	misnamed.ServerName = "other.test"
	bare := ours.worker("bare")
	bare.Certificates = nil
	f("ours", ours.worker("e"), "")
	f("by name", named, "")
	f("another name", misnamed, "other.test")
	f("another authority", theirs.worker("e"), "unknown authority")
	f("without a certificate", bare, "certificate")
	f("without TLS", nil, "takes TLS only, the peer came without")
	w.close()
}

func TestTLSFiles(t *testing.T) {
	if cfg, err := (TLSFiles{}).Load(); cfg != nil || err != nil {
		t.Errorf("no files: got %v, %v", cfg, err)
	}
	a := newAuthority(t)
	a.worker("w")
	at := func(name string) string { return filepath.Join(a.dir, name) }
	f := func(files TLSFiles, text string) {
		t.Helper()
		if _, err := files.Load(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
	f(TLSFiles{Cert: at("w.pem"), Key: at("ca.key"), CA: at("ca.pem")}, "ca.key")
	f(TLSFiles{Cert: at("none.pem"), Key: at("w.key"), CA: at("ca.pem")}, "none.pem")
	f(TLSFiles{Cert: at("w.pem"), Key: at("w.key"), CA: at("none.pem")}, "none.pem")
	f(TLSFiles{Cert: at("w.pem"), Key: at("w.key"), CA: at("w.key")}, "no certificate in")
}
