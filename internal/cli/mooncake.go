// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"afterimage/internal/config"
	"afterimage/internal/ports"
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

// upClientTTL is when the master of up gives a silent mooncake_client up.
const upClientTTL = 5 * time.Second

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
			return "", fmt.Errorf("mooncake.dir %s holds no %s and %s; run 'make deps-mooncake', or name the folder that it made",
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
	return "", fmt.Errorf("%s and %s are missing: run 'make deps-mooncake', or name their folder with mooncake.dir. Looked in:\n%s",
		masterProgram, clientProgram, strings.Join(caches, "\n"))
}

// upMooncake describes the cluster of one host that up starts with store.kind = mooncake, and tells the
// Encoders where it is. With another kind it does nothing.
func upMooncake(l *config.Loaded, caches []string) ([]supervise.Spec, error) {
	if l.Store.Kind != config.StoreMooncake {
		return nil, nil
	}
	dir, err := findMooncake(l.Mooncake.Dir, caches)
	if err != nil {
		return nil, err
	}
	var at [3]string // of the master, of its HTTP, of mooncake_client
	for i := range at {
		if at[i], err = ports.Address(); err != nil {
			return nil, err
		}
	}
	err = errors.Join(l.Set("mooncake.client", at[2], "up"), l.Set("mooncake.admin", at[1], "up"), l.Set("mooncake.client_ttl", upClientTTL.String(), "up"))
	if err != nil {
		return nil, err
	}
	return mooncakeSpecs(dir, at[0], at[1], at[2], int64(l.Store.Bytes)), nil
}

// mooncakeSpecs describes both processes, with the settings of docs/mooncake.md. The master gives a silent
// mooncake_client up sooner, since on one host silence means that it died: until then the master sends
// objects to the memory that died with it.
func mooncakeSpecs(dir, master, metrics, client string, segmentBytes int64) []supervise.Spec {
	server := mooncake.Server{Host: host(client), Port: port(client), Master: master, SegmentBytes: segmentBytes}
	return []supervise.Spec{
		mooncakeSpec(masterName, masterProgram, dir, stageMaster, master, nil,
			"--rpc_address="+host(master), "--rpc_port="+port(master), "--metrics_host="+host(metrics), "--metrics_port="+port(metrics),
			"--client_ttl="+strconv.Itoa(int(upClientTTL/time.Second)), "--default_kv_lease_ttl=10000",
			"--eviction_high_watermark_ratio=0.90", "--eviction_ratio=0.05", "--rpc_thread_num=4", "--minloglevel=1"),
		mooncakeSpec(clientName, clientProgram, dir, stageStore, client, server.Env(), server.Args()...),
	}
}

// mooncakeNoise is what Mooncake's programs print as errors and warnings at each start, and whenever a worker
// joins, leaves or gives its arena a further identity. A worker that lost its mapping says so itself.
var mooncakeNoise = []string{"error=shm_not_mapped", "Local segment descriptor not found", "Transport tcp already installed",
	"warn=segment_already_exists", "Logging before InitGoogleLogging()"}

// mooncakeSpec describes one program of the folder dir that takes connections at address.
func mooncakeSpec(name, program, dir string, stage int, address string, env []string, args ...string) supervise.Spec {
	env = append([]string{"LD_LIBRARY_PATH=" + dir}, env...)
	return supervise.Spec{Name: name, Role: name, Stage: stage, Program: filepath.Join(dir, program), Address: address, Noise: mooncakeNoise,
		Command: func(supervise.Known) ([]string, []string) { return args, env }}
}

func host(address string) string { h, _, _ := net.SplitHostPort(address); return h }
func port(address string) string { _, p, _ := net.SplitHostPort(address); return p }
