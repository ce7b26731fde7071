// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"afterimage/internal/tenant"
)

// Bounds of a fleet's token.
const (
	minToken     = 16
	maxToken     = 512
	maxTokenFile = 64 << 10
)

// Tokens returns what workers take, the one that gateways show first; none if there is no token.
func (f *Fleet) Tokens() ([]string, error) {
	if f.TokenFile == "" {
		if f.Token == "" {
			return nil, nil
		}
		return []string{f.Token}, checkToken(f.Token)
	}
	text, err := os.ReadFile(f.TokenFile)
	if err != nil {
		return nil, plain(err)
	}
	if len(text) > maxTokenFile {
		return nil, fmt.Errorf("larger than %d bytes, so hardly a file of tokens", maxTokenFile)
	}
	var out []string
	for line := range strings.Lines(strings.TrimPrefix(string(text), byteOrderMark)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if err := checkToken(line); err != nil {
			return nil, fmt.Errorf("token %d: %w", len(out)+1, err)
		}
		out = append(out, line)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("it has no token; write one per line")
	}
	return out, nil
}

func checkToken(t string) error {
	if len(t) < minToken || len(t) > maxToken || strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("a token has %d to %d printable characters without spaces; make one with 'openssl rand -hex 32'", minToken, maxToken)
	}
	return nil
}

// fleet checks that the token is there once, and is one.
func (c *checker) fleet(f *Fleet) {
	key := "fleet.token"
	if f.TokenFile != "" {
		key = "fleet.token_file"
		if f.Token != "" {
			c.fault(key, "there is fleet.token too; set one of them")
			return
		}
	}
	if _, err := f.Tokens(); errors.Is(err, os.ErrNotExist) {
		c.fault(key, "no such file; give the path of a file of tokens, one a line")
	} else if err != nil {
		c.fault(key, "%v", err)
	}
}

// keys checks the API keys as a gateway reads them.
func (c *checker) keys(g *Gateway) {
	if _, err := tenant.Clear(g.APIKeys); err != nil {
		c.fault("gateway.api_keys", "%v", err)
		return
	}
	if g.KeysFile == "" {
		return
	}
	if _, err := tenant.Open(g.KeysFile, g.APIKeys, nil); errors.Is(err, os.ErrNotExist) {
		c.fault("gateway.keys_file", "no such file; give the path of a file of keys, which 'afterimage keys new' writes")
	} else if err != nil {
		c.fault("gateway.keys_file", "%v", err)
	}
}
