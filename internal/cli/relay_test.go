// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/testkit"
)

// TestRelayGateway: a gateway with a relay comes up with its memory, Store and state, refuses a state that another one
// uses, and leaves nothing open in it.
func TestRelayGateway(t *testing.T) {
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	state := filepath.Join(t.TempDir(), "state", "relay.json")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	start := func(use roleRun) error {
		a := parsed(t, ctx, "gateway", "--listen", "127.0.0.1:0", "--encode-servers-urls", "http://127.0.0.1:1", "--decode-servers-urls", "http://127.0.0.1:2",
			"--ec-consumer-zmq-addrs", "tcp://127.0.0.1:3", "--relay", "--relay-model", "m", "--relay-memory-bytes", "16MiB", "--relay-state", state, "--mooncake-client", m.Addr())
		name := func(*config.Config) string { return "gateway" }
		return a.runRole(config.RoleGateway, "", name, addresses{http: "gateway.listen"}, use)
	}
	err := start(func(ctx context.Context, cfg config.Config, p *process) error {
		served := make(chan error, 1)
		go func() { served <- runGateway(ctx, cfg, p) }()
		metrics := ""
		for end := time.Now().Add(20 * time.Second); !strings.Contains(metrics, "afterimage_mooncake_connected 1") && time.Now().Before(end); {
			if res, err := http.Get("http://" + p.http.Addr().String() + "/metrics"); err == nil {
				b, _ := io.ReadAll(res.Body)
				res.Body.Close()
				metrics = string(b)
			}
		}
		http.DefaultClient.CloseIdleConnections()
		for _, want := range []string{`afterimage_relay_items_total{result="written"} 0`, "afterimage_mooncake_connected 1", "afterimage_arena_limit_bytes 1.6777216e+07"} {
			if !strings.Contains(metrics, want) {
				t.Errorf("the metrics lack %s", want)
			}
		}
		if err := start(runGateway); err == nil || !strings.Contains(err.Error(), "relay.state") || !strings.Contains(err.Error(), state) {
			t.Errorf("a second gateway with the same state: %v", err)
		}
		cancel()
		return <-served
	})
	if err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(state); err != nil || strings.Contains(string(b), `"open"`) {
		t.Errorf("the state after the end is %s, %v", b, err)
	}
}

// TestRelayNames: the names under which Encoders store are those that are configured, or else the master of the cluster is
// asked, at the port that is configured or else at its usual one.
func TestRelayNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mooncake.json")
	if err := os.WriteFile(file, []byte(`{"master_server_address": "10.0.0.5:50051", "protocol": "tcp"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	joined := []string{config.MooncakeEnv + "=" + file}
	f := func(model, admin string, env []string, namespace string, asks bool, words string) {
		t.Helper()
		cfg := config.DefaultConfig()
		cfg.Relay.Model, cfg.Mooncake.Admin = model, admin
		n, keys, err := relayNames(cfg, env)
		if (err != nil) != (words != "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%q %q: %v, want %q", model, admin, err, words)
		}
		if (keys != nil) != asks || model != "" && n.String() != namespace || model == "" && n != (embedding.Namespace{}) {
			t.Errorf("%q %q: %s, asks %t", model, admin, n, keys != nil)
		}
	}
	f("m", "", nil, "embedding@model:m@revision:default@encoder:"+embedding.VLLMDefaultEncoder+"@dtype:torch.bfloat16@protocol:v3", false, "")
	f("", "10.0.0.5:9003", nil, "", true, "")
	f("", "", joined, "", true, "")
	f("", "", nil, "", false, "mooncake.admin")
	f("", "", []string{config.MooncakeEnv + "=/does/not/exist"}, "", false, "/does/not/exist")
	if got := mooncakeAdmin("", config.MooncakeFile{MasterServerAddress: "10.0.0.5:50051"}); got != "10.0.0.5:9003" {
		t.Errorf("the master is asked at %q", got)
	}
}
