// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/store/mooncake"
)

// checkup is what doctor looks at: this host, for a role with a configuration.
type checkup struct {
	l      *config.Loaded
	role   config.Role
	caches []string
	env    []string // as os.Environ
	client *http.Client
	peers  []peer // once they were asked
}

// is says whether one of roles is to run here; up runs all.
func (h *checkup) is(roles ...config.Role) bool {
	return h.role == config.RoleUp || slices.Contains(roles, h.role)
}

// check makes the checks named in only, or all, in this order.
func (h *checkup) check(ctx context.Context, only []string) (found []finding) {
	for _, c := range []struct {
		name string
		run  func(context.Context) []finding
	}{
		{"vectors", h.vectors}, {"engine", h.engine}, {"model", h.model}, {"memory", h.memory}, {"memlock", h.memlock}, {"shm", h.shm},
		{"files", h.files}, {"ports", h.ports}, {"store", h.store}, {"peers", h.askPeers}, {"clock", h.clock}, {"tls", h.tls},
	} {
		if len(only) == 0 || slices.Contains(only, c.name) {
			found = append(found, c.run(ctx)...)
		}
	}
	return found
}

func (h *checkup) vectors(context.Context) []finding {
	return []finding{verdict("golden vectors", "names and objects come out as built in", embedding.SelfCheck(), mooncake.Fail,
		"this build computes wrong keys: build it with another toolchain, or for the right CPU")}
}

func (h *checkup) engine(context.Context) []finding {
	if !h.is(config.RoleEncoder, config.RolePrefill, config.RoleDecode) || h.l.Engine.Kind != config.EngineLlama {
		return nil
	}
	return checkEngine(h.l.Engine)
}

func (h *checkup) model(context.Context) []finding {
	if !h.is(config.RoleEncoder, config.RolePrefill, config.RoleDecode) || h.l.Engine.Kind != config.EngineLlama {
		return nil
	}
	return checkModels(h.l.Model, h.caches)
}

// arenas is the memory that the role fills from the start.
func (h *checkup) arenas() (total config.Bytes) {
	c := h.l.Config
	size := func(key string, n config.Bytes) config.Bytes {
		if h.role == config.RoleUp && h.l.Source(key) == "default" {
			return upArenaBytes
		}
		return n
	}
	encoders := 1
	if h.role == config.RoleUp {
		encoders = c.Up.Encoders
	}
	if h.is(config.RoleEncoder) {
		total += config.Bytes(encoders) * size("encoder.arena_bytes", c.Encoder.ArenaBytes)
	}
	if h.is(config.RolePrefill) {
		total += size("prefill.arena_bytes", c.Prefill.ArenaBytes) + c.Prefill.HandoffBytes
	}
	if h.role == config.RoleUp && c.Up.Decodes > 0 && h.l.Source("prefill.handoff_bytes") == "default" {
		total += upHandoffBytes
	}
	switch {
	case h.role == config.RoleUp:
		total += config.Bytes(c.Up.Decodes) * c.Decode.ArenaBytes
	case h.role == config.RoleDecode:
		total += c.Decode.ArenaBytes
	}
	if h.is(config.RoleStore) && c.Store.Kind == config.StoreRAM {
		total += c.Store.Bytes
	}
	return total
}

func (h *checkup) memory(context.Context) []finding {
	limit, whose := arena.Limit()
	return []finding{judgeMemory(int64(h.arenas()), limit, whose, available("/proc/meminfo"))}
}

// judgeMemory compares what arenas take with what there is at most, and what is free.
func judgeMemory(need, limit int64, whose string, free int64) finding {
	text := fmt.Sprintf("arenas take %s of the %s, %s", size(need), whose, size(limit))
	const mend = "lower encoder.arena_bytes, prefill.arena_bytes, prefill.handoff_bytes, decode.arena_bytes or store.bytes"
	switch {
	case need > limit:
		return finding{Level: mooncake.Fail, Part: "memory", Text: text, Mend: mend + ", or raise the limit"}
	case need > free:
		return finding{Level: mooncake.Warn, Part: "memory", Text: fmt.Sprintf("%s; only %s are free", text, size(free)), Mend: mend + ", or stop what else runs here"}
	}
	return finding{Level: mooncake.Fine, Part: "memory", Text: text}
}

// available reads how much memory can be had without swapping; no limit where the file does not tell.
func available(file string) int64 {
	f, err := os.Open(file)
	if err != nil {
		return math.MaxInt64
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kib int64
		if n, _ := fmt.Sscanf(lines.Text(), "MemAvailable: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return math.MaxInt64
}

func (h *checkup) memlock(context.Context) []finding {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return nil
	}
	m, err := config.LoadMooncakeFile(h.env, nil)
	pins := h.l.Store.Kind == config.StoreMooncake && err == nil && m.Protocol != "tcp"
	return []finding{judgeMemlock(int64(min(r.Cur, math.MaxInt64)), pins, int64(h.arenas()))}
}

// judgeMemlock compares what may be locked with what has to be: RDMA pins whole arenas, all else nothing.
func judgeMemlock(limit int64, pins bool, need int64) finding {
	much := size(limit) + " may be locked"
	if limit == math.MaxInt64 {
		much = "any memory may be locked"
	}
	switch {
	case !pins:
		return finding{Level: mooncake.Fine, Part: "memlock", Text: much + "; nothing here locks any"}
	case limit < need:
		return finding{Level: mooncake.Fail, Part: "memlock", Text: fmt.Sprintf("%s, RDMA pins %s", much, size(need)), Mend: "set LimitMEMLOCK=infinity in the unit, or 'ulimit -l unlimited'"}
	}
	return finding{Level: mooncake.Fine, Part: "memlock", Text: fmt.Sprintf("%s, RDMA pins %s", much, size(need))}
}

// shm makes, seals and maps an arena, and opens it for reading as a neighbour does.
func (h *checkup) shm(context.Context) []finding {
	err := func() error {
		a, err := arena.New(arena.Config{Name: "afterimage-doctor", Bytes: 1 << 20})
		if err != nil {
			return err
		}
		defer a.Close()
		if a.File() == nil { // a build for the race detector
			return nil
		}
		f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", a.File().Fd()))
		if err != nil {
			return err
		}
		defer f.Close()
		b, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		return unix.Munmap(b)
	}()
	return []finding{verdict("shared memory", "memfd can be made, sealed, mapped and lent; /dev/shm is not used", err, mooncake.Fail,
		"allow memfd_create and /proc/self/fd in the sandbox that this runs in")}
}

// enoughFiles is what a role should be able to open: connections, most of all.
const enoughFiles = 4096

func (h *checkup) files(context.Context) []finding {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return nil
	}
	f := finding{Level: mooncake.Fine, Part: "files", Text: fmt.Sprintf("%d may be open", r.Max)} // the runtime takes all of it
	if r.Max < enoughFiles {
		f.Level, f.Mend = mooncake.Warn, "set LimitNOFILE=65536 in the unit, or 'ulimit -n 65536'"
	}
	return []finding{f}
}

// listeners are the keys of the addresses that a role listens at; up chooses those of workers itself.
var listeners = map[config.Role][]string{
	config.RoleUp: {"gateway.listen"}, config.RoleGateway: {"gateway.listen"}, config.RoleStore: {"store.listen"},
	config.RoleEncoder: {"encoder.listen"}, config.RolePrefill: {"prefill.listen", "prefill.data_listen"},
	config.RoleDecode: {"decode.listen", "decode.data_listen"},
}

func (h *checkup) ports(context.Context) (found []finding) {
	for _, key := range listeners[h.role] {
		ln, err := listen("tcp", h.l, key)
		if err == nil {
			ln.Close()
		}
		found = append(found, verdict("port", text(h.l, key)+" is free", err, mooncake.Warn, ""))
	}
	if h.role == config.RoleStore {
		err := socketFree(h.l.Store.Path)
		found = append(found, verdict("socket", h.l.Store.Path+" can be made", err, mooncake.Warn, "give another path in store.path"))
	}
	return found
}

// socketFree says why no Store could listen at path. It leaves what is there alone.
func socketFree(path string) error {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
		return fmt.Errorf("%s: a Store answers there already", path)
	}
	if err := unix.Access(filepath.Dir(path), unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s: %w", filepath.Dir(path), err)
	}
	return nil
}
