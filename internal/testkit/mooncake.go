// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"afterimage/internal/ports"
)

// mooncakeVersion is the wheel that scripts/deps-mooncake.sh unpacks.
const mooncakeVersion = "0.3.13.post1"

// EnvMooncake names a folder with mooncake_master and mooncake_client to be used instead of the cache.
const EnvMooncake = "AFTERIMAGE_MOONCAKE"

// MooncakeConfig sets up the servers of a test. Zero values mean the default, which each field names.
type MooncakeConfig struct {
	SegmentBytes int64         // memory of the host's mooncake_client; 256 MiB, and none when negative
	LeaseTTL     time.Duration // how long a read protects an object, and may take; 5 s
	ClientTTL    time.Duration // when the master gives up a silent storage node; 30 s
}

// Mooncake is a master and the host's mooncake_client, on loopback and ports of their own.
type Mooncake struct {
	t       testing.TB
	dir     string
	cfg     MooncakeConfig
	rpc     int // of the master
	metrics int // of the master
	port    int // of Client

	Master, Client *Process
}

// StartMooncake starts both and waits until they serve. The end of the test stops them. A test that
// needs them fails where they cannot be started.
func StartMooncake(t testing.TB, cfg MooncakeConfig) *Mooncake {
	t.Helper()
	m := StartMooncakeMaster(t, cfg)
	m.Client, m.port = m.AddNode(max(m.cfg.SegmentBytes, 0))
	return m
}

// StartMooncakeMaster starts the master alone. Client is nil.
func StartMooncakeMaster(t testing.TB, cfg MooncakeConfig) *Mooncake {
	t.Helper()
	cfg.SegmentBytes = cmp.Or(cfg.SegmentBytes, 256<<20)
	cfg.LeaseTTL = cmp.Or(cfg.LeaseTTL, 5*time.Second)
	cfg.ClientTTL = cmp.Or(cfg.ClientTTL, 30*time.Second)
	m := &Mooncake{t: t, dir: MooncakeDir(t), cfg: cfg, rpc: FreePort(t), metrics: FreePort(t)}
	m.Master = StartProcess(t, "mooncake_master", func() *exec.Cmd {
		return mooncakeCommand(m.dir, "mooncake_master", "--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1",
			arg("rpc_port", m.rpc), arg("metrics_port", m.metrics), "--rpc_thread_num=4",
			arg("default_kv_lease_ttl", m.cfg.LeaseTTL.Milliseconds()),
			arg("client_ttl", int64(m.cfg.ClientTTL/time.Second)),
			"--eviction_high_watermark_ratio=0.90", "--eviction_ratio=0.05")
	})
	m.WaitMaster()
	return m
}

// MasterAddr is where the master takes calls.
func (m *Mooncake) MasterAddr() string { return "127.0.0.1:" + strconv.Itoa(m.rpc) }

// AdminAddr is where the master answers HTTP.
func (m *Mooncake) AdminAddr() string { return "127.0.0.1:" + strconv.Itoa(m.metrics) }

// Metric returns a metric of the master.
func (m *Mooncake) Metric(name string) float64 {
	m.t.Helper()
	resp, err := http.Get("http://" + m.AdminAddr() + "/metrics")
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				m.t.Fatal(err)
			}
			return v
		}
	}
	m.t.Fatalf("the master shows no %s", name)
	return 0
}

// Dir is the folder of the programs.
func (m *Mooncake) Dir() string { return m.dir }

// AddNode starts one more mooncake_client that gives segmentBytes to the Store, and returns it with
// its port.
func (m *Mooncake) AddNode(segmentBytes int64) (*Process, int) {
	m.t.Helper()
	return StartMooncakeNode(m.t, m.MasterAddr(), segmentBytes)
}

// StartMooncakeNode starts a mooncake_client of the cluster of master that gives segmentBytes to it, and
// returns the process with its port once it takes calls.
func StartMooncakeNode(t testing.TB, master string, segmentBytes int64) (*Process, int) {
	t.Helper()
	dir, port := MooncakeDir(t), FreePort(t)
	p := StartProcess(t, "mooncake_client_"+strconv.Itoa(port), func() *exec.Cmd {
		return mooncakeCommand(dir, "mooncake_client", "--protocol=tcp", "--host=127.0.0.1", arg("port", port),
			"--master_server_address="+master, "--metadata_server=P2PHANDSHAKE",
			arg("global_segment_size", segmentBytes), "--threads=4", "--minloglevel=1")
	})
	waitMooncake(t, "127.0.0.1:"+strconv.Itoa(port))
	return p, port
}

// Addr is where Client takes calls.
func (m *Mooncake) Addr() string { return "127.0.0.1:" + strconv.Itoa(m.port) }

// WaitMaster waits until the master serves.
func (m *Mooncake) WaitMaster() {
	m.t.Helper()
	waitFor(m.t, "the master", func() bool {
		c := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := c.Get("http://127.0.0.1:" + strconv.Itoa(m.metrics) + "/health")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		var health struct {
			Ready bool `json:"service_ready"`
		}
		return json.NewDecoder(r.Body).Decode(&health) == nil && health.Ready
	})
}

// WaitClient waits until Client takes calls, for use after a restart.
func (m *Mooncake) WaitClient() { m.t.Helper(); m.WaitNode(m.port) }

// WaitNode waits until the mooncake_client at port takes calls. It opens its port last.
func (m *Mooncake) WaitNode(port int) { m.t.Helper(); m.WaitAddr("127.0.0.1:" + strconv.Itoa(port)) }

// WaitAddr is WaitNode for a mooncake_client that somebody else started.
func (m *Mooncake) WaitAddr(address string) { m.t.Helper(); waitMooncake(m.t, address) }

func waitMooncake(t testing.TB, address string) {
	t.Helper()
	waitFor(t, "mooncake_client", func() bool {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
}

func waitFor(t testing.TB, what string, ready func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ready(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not serve after 30 s", what)
		}
	}
}

func mooncakeCommand(dir, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(dir, program), args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "MC_FORCE_TCP=1", "MC_TCP_ENABLE_CONNECTION_POOL=1",
		"MC_TCP_PROGRESS_TIMEOUT_SEC=5", "MC_TCP_STATUS_TIMEOUT_SEC=5", "MC_RPC_TIMEOUT_MS=2000")
	return cmd
}

func arg[T int | int64](name string, v T) string { return fmt.Sprintf("--%s=%d", name, v) }

// FreePort returns a port of 127.0.0.1 that nobody listens at, and that nobody else is given before the test ends.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := ports.Take()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ports.Release(port) })
	return port
}

// MooncakeDir returns the folder of Mooncake's programs, which make deps-mooncake unpacked.
func MooncakeDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv(EnvMooncake)
	if dir == "" {
		arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
		dir = filepath.Join(moduleRoot(t), ".cache", "mooncake", mooncakeVersion+"-"+arch)
	}
	for _, program := range []string{"mooncake_master", "mooncake_client"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			t.Fatalf("no Mooncake in %s: run `make deps-mooncake`, or name a folder with %s in %s (%v)",
				dir, program, EnvMooncake, err)
		}
	}
	return dir
}

// moduleRoot returns the folder of go.mod above the test's package.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the test's folder")
	return ""
}
