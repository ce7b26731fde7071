// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// checkSize refuses an arena that could never be populated. Without it the kernel would end the
// process at some later write.
func checkSize(n int64) error { return checkLimit(n, memory(), os.DirFS("/")) }

// Limit returns the most bytes of memory that this process can have, and whose limit that is, in
// words.
func Limit() (bytes int64, whose string) { return limitOf(memory(), os.DirFS("/")) }

// memory returns the machine's RAM in bytes, or no limit where it cannot be told.
func memory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return math.MaxInt64
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// limitOf returns the lower of the machine's ram and the cgroup limits found in root.
func limitOf(ram int64, root fs.FS) (limit int64, whose string) {
	if l, name, ok := cgroupLimit(root); ok && l < ram {
		return l, "memory limit of cgroup " + name
	}
	return ram, "memory of this machine"
}

// checkLimit compares n with what limitOf says.
func checkLimit(n, ram int64, root fs.FS) error {
	if limit, whose := limitOf(ram, root); n > limit {
		return fmt.Errorf("arena: %d bytes exceed the %s, %d bytes: lower arena_bytes", n, whose, limit)
	}
	return nil
}

// cgroupLimit returns the tightest memory limit on the way from the process's cgroup to the root, for
// cgroup v2 and v1. What cannot be read sets no limit.
func cgroupLimit(root fs.FS) (limit int64, name string, ok bool) {
	membership, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, "", false
	}
	for line := range strings.Lines(string(membership)) {
		// id:controllers:path; v2 has the id 0 and no controllers.
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		if f[0] != "0" || f[1] != "" {
			if !strings.Contains(","+f[1]+",", ",memory,") {
				continue
			}
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		// Inside a container the path may be that of the host; the walk then ends at the mount, which
		// is the container's own cgroup.
		for dir := path.Clean("/" + f[2]); ; dir = path.Dir(dir) {
			if l, found := readLimit(root, path.Join(mount, dir, file)); found && (!ok || l < limit) {
				limit, name, ok = l, dir, true
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit, name, ok
}

// readLimit reads one limit file; "max" is no limit.
func readLimit(root fs.FS, name string) (int64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return n, err == nil
}
