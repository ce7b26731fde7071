// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store/mooncake"
)

// MooncakeBench is what the benchmarks of the Mooncake Store need: Mooncake's programs, of which it starts a
// master, this host's mooncake_client, which holds all objects, and a second one without memory. Through the
// first, objects are in memory of the host's own mooncake_client; through the second, on another storage node
// over TCP.
type MooncakeBench struct {
	Dir      string    // of mooncake_master and mooncake_client
	Env      []string  // of the processes
	Progress io.Writer // for people; nil for none
	Python   string    // of make peers; "" when it is not installed
	Peers    []string  // to compare with, of those that there are
	Rounds   Rounds
	Sizes    []int // bytes of the payloads, multiples of 2048
	Counts   []int // objects of one request
	// SegmentBytes is what the storage node gives to the Store: the objects that are read, three times the
	// largest request, and what waits for its removal.
	SegmentBytes int64
}

// DefaultMooncakeBench returns the figures that the targets are stated for.
func DefaultMooncakeBench() MooncakeBench {
	return MooncakeBench{Peers: MooncakePeers(), Rounds: Rounds{Rounds: 5, Warmup: 10, Samples: 60},
		Sizes: []int{16 << 10, 1 << 20, 30 << 20}, Counts: []int{1, 4}, SegmentBytes: 2 << 30}
}

// MooncakePeers are all that the benchmarks of the Mooncake Store can compare with.
func MooncakePeers() []string { return []string{peerVLLM, peerPython, peerDummy} }

// colsV3 is the width of the objects, which are bfloat16: 2048 bytes are a row.
const colsV3 = 1024

// benchNamespace is that of all objects: the peers build the same keys from it.
var benchNamespace = embedding.Namespace{Prefix: "bench", Model: "bench", Encoder: "bench", DType: embedding.BFloat16, Protocol: embedding.V3}

// leaseMS protects what is read, and keeps it from being removed.
const leaseMS = 5000

// mooncakeAddresses say where the parts are.
type mooncakeAddresses struct{ dir, master, metrics, host, bare string }

// mooncakeRig is the cluster and this process's connections to it.
type mooncakeRig struct {
	mooncakeAddresses
	servers []*child // in the order of their start
	node    *child   // the storage node, which is also this host's mooncake_client
	arena   *arena.Arena
	local   *mooncake.Client  // objects are in the host's own mooncake_client
	remote  *mooncake.Client  // they are on another node
	peers   map[string]*peer  // those that run
	without map[string]string // why the others do not
}

// largest is the most bytes that one request moves.
func (b MooncakeBench) largest() int {
	most := 0
	for _, size := range b.Sizes {
		for _, n := range b.Counts {
			most = max(most, n*(size+embedding.HeaderBytesV3))
		}
	}
	return most
}

// room is the memory that a peer reads into, in whole pages.
func (b MooncakeBench) room() int { return (b.largest()>>20 + 1) << 20 }

// start brings up the cluster, the connections and the peers.
func (b MooncakeBench) start(ctx context.Context, p *progress) (r *mooncakeRig, err error) {
	r = &mooncakeRig{peers: map[string]*peer{}, without: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	if r.dir, err = os.MkdirTemp("", "afterimage-bench-"); err != nil {
		return r, err
	}
	p.step("starting a Mooncake cluster")
	if err := r.cluster(ctx, b); err != nil {
		return r, err
	}
	if r.arena, err = arena.New(arena.Config{Name: "afterimage-bench", Bytes: int64(4*b.largest() + 64<<20)}); err != nil {
		return r, err
	}
	for _, c := range []struct {
		to   **mooncake.Client
		addr string
	}{{&r.local, r.host}, {&r.remote, r.bare}} {
		if *c.to, err = mooncake.Open(ctx, mooncake.Config{Addr: c.addr, Logger: quietLog}, r.arena); err != nil {
			return r, err
		}
		if err := (*c.to).Wait(ctx); err != nil {
			return r, err
		}
	}
	if err := r.warm(ctx, b.SegmentBytes); err != nil {
		return r, err
	}
	return r, r.startPeers(ctx, b, p)
}

// startPeers starts the peers that are asked for and installed.
func (r *mooncakeRig) startPeers(ctx context.Context, b MooncakeBench, p *progress) error {
	for _, kind := range MooncakePeers() {
		r.without[kind] = "not asked for"
	}
	env, err := r.peerEnv(b)
	if err != nil {
		return err
	}
	for _, kind := range b.Peers {
		if b.Python == "" {
			r.without[kind] = "not installed: run make peers"
			continue
		}
		p.step("starting %s", kind)
		if r.peers[kind], err = startPeer(ctx, kind, r.mooncakeAddresses, b.Python, env, b.room()); err != nil {
			delete(r.peers, kind)
			return err
		}
	}
	return nil
}

// peerEnv returns the environment of the peers: Mooncake's settings are those of its servers here.
func (r *mooncakeRig) peerEnv(b MooncakeBench) ([]string, error) {
	file := filepath.Join(r.dir, "mooncake.json")
	text, err := json.Marshal(map[string]any{
		"mode": "standalone-store", "metadata_server": "P2PHANDSHAKE", "master_server_address": r.master, "protocol": "tcp",
		"device_name": "", "global_segment_size": 0, "local_buffer_size": "64mb",
	})
	if err != nil {
		return nil, err
	}
	return append(vllmEnv(b.Env, b.Dir), "MOONCAKE_CONFIG_PATH="+file), os.WriteFile(file, text, 0o600)
}

// vllmEnv is the environment of programs with vLLM's and Mooncake's Python code in them: on this host's CPU, over TCP. dir
// has the libraries that Mooncake needs.
func vllmEnv(own []string, dir string) []string {
	env := []string{
		"LD_LIBRARY_PATH=" + dir, "MC_FORCE_TCP=1", "MC_TCP_ENABLE_CONNECTION_POOL=1", "GLOG_minloglevel=1",
		"VLLM_TARGET_DEVICE=cpu", "VLLM_HOST_IP=127.0.0.1", "OMP_NUM_THREADS=1", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1",
		"VLLM_LOGGING_LEVEL=WARNING",
	}
	for _, v := range own {
		if !strings.HasPrefix(v, "PYTHON") { // compiled modules are to be used, and nothing of the caller's
			env = append(env, v)
		}
	}
	return env
}

// stop ends all of it: those that use something before what they use.
func (r *mooncakeRig) stop() error {
	var errs []error
	for _, p := range r.peers {
		p.stop()
	}
	for _, c := range []*mooncake.Client{r.local, r.remote} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	for i := len(r.servers) - 1; i >= 0; i-- {
		r.servers[i].stop()
	}
	if r.arena != nil {
		errs = append(errs, r.arena.Close())
	}
	if r.dir != "" {
		errs = append(errs, os.RemoveAll(r.dir))
	}
	return errors.Join(errs...)
}
