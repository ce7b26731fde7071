// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/testkit"
)

// lone is an Encoder that runs by itself beside a Mooncake cluster.
type lone struct {
	*testkit.Process
	view *upRun // for its metrics
}

// joiner starts Encoders that find the cluster of m by MOONCAKE_CONFIG_PATH alone.
type joiner struct {
	m      *testkit.Mooncake
	file   string
	client string // mooncake.client
}

func newJoiner(t *testing.T) *joiner {
	t.Helper()
	j := &joiner{m: testkit.StartMooncakeMaster(t, testkit.MooncakeConfig{ClientTTL: time.Second}),
		file: filepath.Join(t.TempDir(), "mooncake.json"), client: "127.0.0.1:" + strconv.Itoa(testkit.FreePort(t))}
	text := fmt.Sprintf(`{"master_server_address": %q, "metadata_server": "P2PHANDSHAKE", "protocol": "tcp", "mode": "embedded", "global_segment_size": "64mb"}`,
		j.m.MasterAddr())
	if err := os.WriteFile(j.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return j
}

// command prepares an Encoder, which needs no word about Mooncake but the address of a test's client.
func (j *joiner) command(t *testing.T, name, listen string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, append([]string{"encoder", "--engine", "device", "--name", name, "--listen", listen, "--arena-bytes", "24MiB",
		"--cache-bytes", "8MiB", "--mooncake-client", j.client, "--mooncake-dir", j.m.Dir()}, args...)...)
	cmd.Env = append(cmd.Env, "MOONCAKE_CONFIG_PATH="+j.file)
	return cmd
}

func (j *joiner) start(t *testing.T, name string) *lone {
	t.Helper()
	return j.startChanged(t, name, func(*exec.Cmd) {})
}

func (j *joiner) startChanged(t *testing.T, name string, change func(*exec.Cmd)) *lone {
	t.Helper()
	address := "127.0.0.1:" + strconv.Itoa(testkit.FreePort(t))
	return &lone{
		Process: testkit.StartProcess(t, name, func() *exec.Cmd {
			cmd := j.command(t, name, address)
			change(cmd)
			return cmd
		}),
		view: &upRun{address: map[string]string{name: address}, client: clientOf("http://" + address)},
	}
}

// connected says whether the Encoder has given its arena to a mooncake_client.
func (l *lone) connected(t *testing.T) bool {
	for name, address := range l.view.address {
		resp, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return false // it is starting
		}
		resp.Body.Close()
		return l.view.count(t, name, "afterimage_mooncake_connected", "") == 1
	}
	return false
}

// foreign starts a mooncake_client as somebody would who was told how.
func (j *joiner) foreign(t *testing.T, command string) *testkit.Process {
	t.Helper()
	env, args, _ := strings.Cut(strings.TrimSpace(command), " mooncake_client ")
	p := testkit.StartProcess(t, "mooncake_client", func() *exec.Cmd {
		cmd := exec.Command(filepath.Join(j.m.Dir(), "mooncake_client"), strings.Fields(args)...)
		cmd.Env = append(append(os.Environ(), strings.Fields(env)...), "LD_LIBRARY_PATH="+j.m.Dir())
		return cmd
	})
	eventually(t, "the command starts one", func() bool { return len(j.clients()) == 1 })
	j.m.WaitAddr(j.client)
	return p
}

// clients finds the processes of mooncake_client at j.client, by process id, with those of their parents.
func (j *joiner) clients() map[int]int {
	found := map[int]int{}
	_, port, _ := strings.Cut(j.client, ":")
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		b, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(b, []byte("mooncake_client\x00")) || !bytes.Contains(b, []byte("--port="+port+"\x00")) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if fields[0] == "Z" {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		found[pid], _ = strconv.Atoi(fields[1])
	}
	return found
}

// one waits until both Encoders are connected and a single mooncake_client runs that is none of before.
func (j *joiner) one(t *testing.T, what string, before int, encoders ...*lone) (pid, parent int) {
	t.Helper()
	eventually(t, what, func() bool {
		for _, e := range encoders {
			if !e.connected(t) {
				return false
			}
		}
		found := j.clients()
		for pid, parent = range found {
		}
		return len(found) == 1 && pid != before
	})
	return pid, parent
}

// TestJoinStartsOneClient: Encoders of one host that find no mooncake_client have one started by one of
// them. It is started again when it dies, by another Encoder when its starter dies, and goes with the last.
func TestJoinStartsOneClient(t *testing.T) {
	j := newJoiner(t)
	encoders := []*lone{j.start(t, "encoder-0"), j.start(t, "encoder-1")}
	first, starter := j.one(t, "one client serves both", 0, encoders...)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second, same := j.one(t, "the client is started again", first, encoders...)
	if same != starter {
		t.Errorf("process %d started the second client, want %d, which runs", same, starter)
	}
	heir := encoders[0]
	for i, e := range encoders {
		if e.Pid() == starter {
			heir = encoders[1-i]
			e.Kill()
		}
	}
	if heir.Pid() == starter {
		t.Fatalf("process %d started the client, want one of the Encoders", starter)
	}
	_, last := j.one(t, "the other Encoder starts one", second, heir)
	if last != heir.Pid() {
		t.Errorf("process %d started the third client, want %d", last, heir.Pid())
	}
	log := heir.Tail(1 << 20)
	for line, want := range map[string]int{"starting a mooncake_client": 1, "mooncake: the Store is away": 2, "mooncake: the Store is back": 2} {
		if got := strings.Count(log, line); got != want {
			t.Errorf("%q is in the log %d times, want %d", line, got, want)
		}
	}
	heir.Signal(syscall.SIGTERM)
	eventually(t, "the client ends with its Encoder", func() bool { return len(j.clients()) == 0 })
}

// TestJoinGivesNothing: in mode standalone-store the mooncake_client that is started gives the cluster no memory. What
// the Encoder publishes goes to the nodes that do.
func TestJoinGivesNothing(t *testing.T) {
	j := newJoiner(t)
	text := fmt.Sprintf(`{"master_server_address": %q, "protocol": "tcp", "mode": "standalone-store", "global_segment_size": 0}`, j.m.MasterAddr())
	if err := os.WriteFile(j.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e := j.start(t, "encoder-0")
	pid, _ := j.one(t, "one client serves the Encoder", 0, e)
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !bytes.Contains(args, []byte("--global_segment_size=0\x00")) {
		t.Errorf("the client runs as %q, %v, want no segment", args, err)
	}
	if n := j.m.Metric("master_total_capacity_bytes"); n != 0 {
		t.Errorf("the cluster has %v bytes, want none", n)
	}
	j.m.AddNode(64 << 20)
	eventually(t, "an object is stored there", func() bool {
		stdout, _, status := run(t, "doctor", "--store", "mooncake", "--mooncake-client", j.client)
		return status == 0 && strings.Contains(stdout, "ok    object")
	})
}

// TestJoinRefusesToStart: with mooncake.start_client off, an Encoder that finds no mooncake_client ends and
// says how one is started; the same command works.
func TestJoinRefusesToStart(t *testing.T) {
	j := newJoiner(t)
	var errs bytes.Buffer
	cmd := j.command(t, "encoder-0", "127.0.0.1:0", "--no-mooncake-start-client")
	cmd.Stderr = &errs
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("it ended with %v, want status 1", cmd.ProcessState)
	}
	_, line, _ := strings.Cut(errs.String(), "start it:\n")
	if !strings.Contains(errs.String(), j.client) || !strings.Contains(line, j.m.MasterAddr()) {
		t.Fatalf("it says %s, want the address and a command for the master", errs.String())
	}
	foreign := j.foreign(t, line)
	e := j.start(t, "encoder-0")
	j.one(t, "the Encoder uses it", 0, e)
	// It is somebody else's: an Encoder does not start one in its place.
	foreign.Kill()
	eventually(t, "the Encoder notices", func() bool { return !e.connected(t) })
	if log := e.Tail(1 << 20); strings.Contains(log, "starting a mooncake_client") {
		t.Errorf("the Encoder starts a mooncake_client in the place of a foreign one:\n%s", log)
	}
}

// TestJoinWaits: where the cluster is not known, or the programs are missing, an Encoder is ready without a
// mooncake_client, says once how one is started, and uses it when it is there.
func TestJoinWaits(t *testing.T) {
	for name, change := range map[string]func(*exec.Cmd){
		"no file": func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, "MOONCAKE_CONFIG_PATH=", "AFTERIMAGE_STORE_KIND=mooncake")
		},
		"no programs": func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--mooncake-dir", os.TempDir()) },
	} {
		t.Run(name, func(t *testing.T) {
			j := newJoiner(t)
			e := j.startChanged(t, "encoder-0", change)
			eventually(t, "the Encoder is ready", func() bool {
				resp, err := http.Get("http://" + e.view.address["encoder-0"] + "/readyz")
				if err != nil {
					return false
				}
				resp.Body.Close()
				return resp.StatusCode == http.StatusOK
			})
			log := e.Tail(1 << 20)
			if n := strings.Count(log, " mooncake_client --protocol=tcp"); n != 1 || e.connected(t) {
				t.Fatalf("the command is in the log %d times, want once; connected: %v\n%s", n, e.connected(t), log)
			}
			j.foreign(t, fmt.Sprintf("MC_FORCE_TCP=1 mooncake_client --protocol=tcp --host=127.0.0.1 --port=%s --master_server_address=%s "+
				"--metadata_server=P2PHANDSHAKE --global_segment_size=64MB --threads=4 --minloglevel=1", strings.TrimPrefix(j.client, "127.0.0.1:"), j.m.MasterAddr()))
			j.one(t, "the Encoder uses it", 0, e)
		})
	}
}
