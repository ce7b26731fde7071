// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"cmp"
	"fmt"
	"strings"
)

// Server says how a mooncake_client is started. Zero values mean the default, which each field names.
type Server struct {
	// Host is the address under which other hosts reach this one; the server takes calls there and
	// nowhere else. "HOST", for the reader of Command to fill in.
	Host     string
	Port     string // of calls; "50052"
	Master   string // host:port of mooncake_master; "MASTER:50051", likewise
	Metadata string // "P2PHANDSHAKE" or the URL of a metadata server, as all members of the cluster have it; the former
	Protocol string // "tcp" or "rdma"; the former
	Device   string // network devices of rdma; all
	Tenant   string // whose objects all of its workers read and write, at a master with tenants; "default"
	// SegmentBytes is what this host gives to the cluster. With 0 heartbeats cannot tell whether the master
	// is there.
	SegmentBytes int64
}

// serverThreads serves four workers with four connections each: a PUT holds up what shares its thread.
const serverThreads = 16

// Args returns its arguments.
func (s Server) Args() []string {
	args := []string{
		"--protocol=" + s.protocol(), "--host=" + cmp.Or(s.Host, "HOST"), "--port=" + cmp.Or(s.Port, "50052"),
		"--master_server_address=" + cmp.Or(s.Master, "MASTER:50051"), "--metadata_server=" + cmp.Or(s.Metadata, "P2PHANDSHAKE"),
		fmt.Sprintf("--global_segment_size=%d", s.SegmentBytes), fmt.Sprintf("--threads=%d", serverThreads), "--minloglevel=1",
	}
	if s.Device != "" {
		args = append(args, "--device_names="+s.Device)
	}
	if s.Tenant != "" && s.Tenant != "default" {
		args = append(args, "--tenant_id="+s.Tenant)
	}
	return args
}

// Env returns what its environment has in addition. Transfers with a storage node that stands still, and
// calls to such a master, are given up sooner than by default.
func (s Server) Env() []string {
	env := []string{"MC_TCP_ENABLE_CONNECTION_POOL=1", "MC_TCP_PROGRESS_TIMEOUT_SEC=5", "MC_TCP_STATUS_TIMEOUT_SEC=5", "MC_RPC_TIMEOUT_MS=2000"}
	if s.protocol() == "tcp" {
		env = append(env, "MC_FORCE_TCP=1")
	}
	return env
}

// Command returns the line for a shell.
func (s Server) Command() string {
	words := append(append(s.Env(), "mooncake_client"), s.Args()...)
	for i, w := range words {
		words[i] = quoted(w)
	}
	return strings.Join(words, " ")
}

// quoted is word as a shell reads it back: addresses of several servers are told apart by a semicolon.
func quoted(word string) string {
	if !strings.ContainsAny(word, " \t\n\"'`$&;|<>()*?[]#~\\") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func (s Server) protocol() string { return cmp.Or(s.Protocol, "tcp") }
