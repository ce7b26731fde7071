// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"afterimage/internal/tenant"
)

// keysNew runs the command and returns the lines for the file, what people see, and the status.
func keysNew(t *testing.T, args ...string) (lines, told string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	p := Program{Args: append([]string{"keys", "new"}, args...), Stdout: &out, Stderr: &errs}
	status = p.Main(t.Context())
	return out.String(), errs.String(), status
}

// The key is shown once and is in no line of the file; what is appended again and again is a file of keys.
func TestKeysNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.toml")
	var file string
	var keys []string
	for _, args := range [][]string{{"--tenant", "acme"}, {"--tenant", "acme", "--name", `the "second"`}, {"--tenant", "ops", "--admin"}} {
		lines, told, status := keysNew(t, args...)
		i := strings.Index(told, tenant.Prefix)
		if status != exitOK || i < 0 {
			t.Fatalf("%v: status %d, %s", args, status, told)
		}
		key := strings.TrimSpace(told[i:])
		if strings.Contains(lines, key) {
			t.Errorf("%v: the key is in the lines for the file", args)
		}
		file += lines
		keys = append(keys, key)
	}
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	opened, err := tenant.Open(path, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		tenant, name string
		admin        bool
	}{{"acme", "", false}, {"acme", `the "second"`, false}, {"ops", "", true}} {
		if k := opened.Set().Find(keys[i]); k == nil || k.Tenant.Name != want.tenant || k.Name != want.name || k.Admin != want.admin {
			t.Errorf("key %d: %+v", i, k)
		}
	}
	var out bytes.Buffer
	p := Program{Args: []string{"keys", "check", path}, Stdout: &out, Stderr: &out}
	if status := p.Main(t.Context()); status != exitOK || strings.Count(out.String(), "acme") != 2 || strings.Contains(out.String(), "sha256") {
		t.Errorf("keys check: status %d\n%s", status, &out)
	}
	for _, bad := range []string{"", "a b", strings.Repeat("x", 65), "\x00"} {
		if lines, told, status := keysNew(t, "--tenant", bad); status != exitUsage || lines != "" || strings.Contains(told, tenant.Prefix) {
			t.Errorf("tenant %.20q: status %d, %q, %q", bad, status, lines, told)
		}
	}
}

// A worker that more than its own host reaches says at start that anybody may use it, unless it has a token.
func TestOpenWorkersAreTold(t *testing.T) {
	for address, c := range map[string]struct {
		tokens []string
		told   bool
	}{"127.0.0.1:0": {nil, false}, "[::1]:0": {nil, false}, "0.0.0.0:0": {nil, true}, ":0": {[]string{"0123456789abcdef"}, false}} {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		p := &process{http: ln, log: slog.New(slog.NewTextHandler(&log, nil))}
		p.warnOpen(c.tokens)
		ln.Close()
		if strings.Contains(log.String(), "fleet.token") != c.told {
			t.Errorf("%s with %q: %s", address, c.tokens, &log)
		}
	}
}
