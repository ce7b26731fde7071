// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/supervise"
)

// The programs of Mooncake, and the processes of up that run them.
const (
	masterProgram = "mooncake_master"
	clientProgram = "mooncake_client"
	masterName    = "mooncake-master"
	clientName    = "mooncake-client"
)

// upMooncakeBytes is the default of what up gives to the cluster that it starts.
const upMooncakeBytes = 256 * config.MiB

// How long an Encoder waits for its Store: at its start, after which it serves without and goes on
// trying, and at its end, which has to fit into the 5 s of up.
const (
	mooncakeOpenTimeout  = 5 * time.Second
	mooncakeCloseTimeout = 2 * time.Second
)

// openMooncake returns a client of the mooncake_client of this host, which transfers from and to memory.
func openMooncake(ctx context.Context, cfg config.Store, p *process, memory *arena.Arena) (*mooncake.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, mooncakeOpenTimeout)
	defer cancel()
	c, err := mooncake.Open(ctx, mooncake.Config{Addr: cfg.MooncakeClient, CloseTimeout: mooncakeCloseTimeout, Logger: p.log}, memory)
	if err != nil {
		return nil, fmt.Errorf("store.mooncake_client = %q: %w; 'afterimage doctor --store mooncake' looks closer", cfg.MooncakeClient, err)
	}
	p.registry.MustRegister(c.Collector())
	return c, nil
}

// findMooncake returns the folder of Mooncake's programs: the one named, or else what make deps-mooncake
// made.
func findMooncake(named string, caches []string) (string, error) {
	holds := func(dir string) bool {
		for _, name := range []string{masterProgram, clientProgram} {
			if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode()&0o111 == 0 || !st.Mode().IsRegular() {
				return false
			}
		}
		return true
	}
	if named != "" {
		if !holds(named) {
			return "", fmt.Errorf("store.mooncake_dir %s holds no %s and %s; run 'make deps-mooncake', or name the folder that it made",
				named, masterProgram, clientProgram)
		}
		return filepath.Abs(named)
	}
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	for _, c := range caches {
		found, _ := filepath.Glob(filepath.Join(c, "mooncake", "*-"+machine)) // fails for bad patterns only
		for _, dir := range slices.Backward(found) {
			if holds(dir) {
				return filepath.Abs(dir)
			}
		}
	}
	return "", fmt.Errorf("%s and %s are missing: run 'make deps-mooncake', or name their folder with store.mooncake_dir. Looked in:\n%s",
		masterProgram, clientProgram, strings.Join(caches, "\n"))
}

// upMooncake describes the cluster of one host that up starts with store.kind = mooncake, and tells the
// Encoders where it is. With another kind it does nothing.
func upMooncake(l *config.Loaded, caches []string) ([]supervise.Spec, error) {
	if l.Store.Kind != config.StoreMooncake {
		return nil, nil
	}
	dir, err := findMooncake(l.Store.MooncakeDir, caches)
	if err != nil {
		return nil, err
	}
	at, err := freeAddresses(3)
	if err != nil {
		return nil, err
	}
	if err := l.Set("store.mooncake_client", at[2], "up"); err != nil {
		return nil, err
	}
	return mooncakeSpecs(dir, at[0], at[1], at[2], int64(l.Store.Bytes)), nil
}

// mooncakeSpecs describes both processes, with the settings of docs/mooncake.md. The master gives a silent
// mooncake_client up sooner, since on one host silence means that it died: until then the master sends
// objects to the memory that died with it.
func mooncakeSpecs(dir, master, metrics, client string, segmentBytes int64) []supervise.Spec {
	spec := func(name, program string, stage int, address string, args ...string) supervise.Spec {
		env := []string{"LD_LIBRARY_PATH=" + dir, "MC_FORCE_TCP=1", "MC_TCP_ENABLE_CONNECTION_POOL=1",
			"MC_TCP_PROGRESS_TIMEOUT_SEC=5", "MC_TCP_STATUS_TIMEOUT_SEC=5", "MC_RPC_TIMEOUT_MS=2000"}
		return supervise.Spec{Name: name, Role: name, Stage: stage, Program: filepath.Join(dir, program), Address: address,
			Command: func(supervise.Known) ([]string, []string) { return args, env }}
	}
	return []supervise.Spec{
		spec(masterName, masterProgram, stageMaster, master,
			"--rpc_address="+host(master), "--rpc_port="+port(master), "--metrics_host="+host(metrics), "--metrics_port="+port(metrics),
			"--client_ttl=5", "--default_kv_lease_ttl=10000", "--eviction_high_watermark_ratio=0.90", "--eviction_ratio=0.05",
			"--rpc_thread_num=4", "--minloglevel=1"),
		spec(clientName, clientProgram, stageStore, client,
			"--protocol=tcp", "--host="+host(client), "--port="+port(client), "--master_server_address="+master,
			"--metadata_server=P2PHANDSHAKE", fmt.Sprintf("--global_segment_size=%d", segmentBytes), "--threads=4", "--minloglevel=1"),
	}
}

func host(address string) string { h, _, _ := net.SplitHostPort(address); return h }
func port(address string) string { _, p, _ := net.SplitHostPort(address); return p }

// freeAddresses returns n addresses of 127.0.0.1 on which nobody listens, for programs that cannot say
// which port they chose.
func freeAddresses(n int) ([]string, error) {
	var out []string
	for range n {
		ln, err := net.Listen("tcp", anyPort)
		if err != nil {
			return nil, err
		}
		defer ln.Close() // held together, so that all differ
		out = append(out, ln.Addr().String())
	}
	return out, nil
}
