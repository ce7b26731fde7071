// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"math"
	"strings"
	"testing"
	"testing/fstest"
)

func TestNewRefusesSizes(t *testing.T) {
	for _, n := range []int64{0, -1, math.MaxInt64, 1 << 50} {
		if a, err := New(Config{Bytes: n}); err == nil {
			t.Errorf("an arena of %d bytes works: %+v", n, a.Stats())
		}
	}
}

func TestCheckLimit(t *testing.T) {
	const ram = 1000
	f := func(n int64, want string, files ...string) {
		t.Helper()
		root := fstest.MapFS{}
		for i := 0; i < len(files); i += 2 {
			root[files[i]] = &fstest.MapFile{Data: []byte(files[i+1] + "\n")}
		}
		err := checkLimit(n, ram, root)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f(1000, "")
	f(1001, "1001 bytes exceed the memory of this machine, 1000 bytes")
	v2 := []string{"proc/self/cgroup", "0::/a/b"}
	f(1000, "", append(v2, "sys/fs/cgroup/a/b/memory.max", "max")...)
	f(1000, "", append(v2, "sys/fs/cgroup/a/b/memory.max", "5000")...)
	f(501, "501 bytes exceed the memory limit of cgroup /a/b, 500 bytes", append(v2, "sys/fs/cgroup/a/b/memory.max", "500")...)
	f(500, "", append(v2, "sys/fs/cgroup/a/b/memory.max", "500")...)
	f(401, "cgroup /a, 400 bytes", append(v2, "sys/fs/cgroup/a/memory.max", "400", "sys/fs/cgroup/a/b/memory.max", "500")...)
	f(301, "cgroup /, 300 bytes", append(v2, "sys/fs/cgroup/memory.max", "300")...)
	v1 := []string{"proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/c"}
	f(201, "cgroup /c, 200 bytes", append(v1, "sys/fs/cgroup/memory/c/memory.limit_in_bytes", "200")...)
	f(1000, "", append(v1, "sys/fs/cgroup/memory/c/memory.limit_in_bytes", "9223372036854771712")...)
	f(1000, "", "proc/self/cgroup", "nonsense")
	f(1000, "", "proc/self/cgroup", "0::../../..")
}
