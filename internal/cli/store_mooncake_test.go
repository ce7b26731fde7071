// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/testkit"
)

// moonRig is a real cluster with two objects, and a third that is bad.
type moonRig struct {
	*testkit.Mooncake
	keys []embedding.Key
}

func newMoonRig(t *testing.T) *moonRig {
	t.Helper()
	r := &moonRig{Mooncake: testkit.StartMooncake(t, testkit.MooncakeConfig{LeaseTTL: 200 * time.Millisecond})}
	a, err := arena.New(arena.Config{Name: "rig", Bytes: 1 << 20, Mapped: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := mooncake.Open(t.Context(), mooncake.Config{Addr: r.Addr()}, a)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, p := range []embedding.Protocol{embedding.V3, embedding.A1, embedding.A1} {
		key, obj := soundObject(t, p, i)
		if i == 2 {
			obj[len(obj)-1] ^= 1
		}
		buf, err := a.Reserve(len(obj))
		if err != nil {
			t.Fatal(err)
		}
		copy(buf.Bytes(), obj)
		buf.Commit()
		if err := c.Put(t.Context(), key, buf, store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		buf.Release()
		r.keys = append(r.keys, key)
	}
	return r
}

// run runs the program on the cluster, which it can list when admin is given.
func (r *moonRig) run(t *testing.T, admin string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	p := Program{Args: append([]string{"store"}, args...), Stdout: &out, Stderr: &errs,
		Env: []string{"AFTERIMAGE_STORE_KIND=mooncake", "AFTERIMAGE_MOONCAKE_CLIENT=" + r.Addr(), "AFTERIMAGE_MOONCAKE_ADMIN=" + admin}}
	status = p.Main(t.Context())
	return out.String(), errs.String(), status
}

// TestStoreToolsOfMooncake: what works on a ram Store works on a cluster whose master answers.
func TestStoreToolsOfMooncake(t *testing.T) {
	r := newMoonRig(t)
	f := func(status int, words string, args ...string) {
		t.Helper()
		out, errs, got := r.run(t, r.AdminAddr(), args...)
		if got != status || !strings.Contains(out+errs, words) {
			t.Errorf("store %q: status %d, want %d with %q\n%s%s", args, got, status, words, out, errs)
		}
	}
	f(0, "3 objects", "ls")
	f(0, `"objects":3`, "stat", "--json")
	f(0, "size  ", "stat", "00")
	f(0, "8 of 16 x float32", "get", "00")
	f(1, "2 good, 1 bad (1 corrupt)", "verify")
	file := filepath.Join(t.TempDir(), "all.afi")
	f(1, "left out (1 corrupt)", "export", file)
	f(0, "1 removed", "verify", "--rm")
	f(0, "rm: 2 objects", "rm", "--all", "--yes", "--mooncake-client", r.Addr())
	f(0, "0 objects", "ls")
	f(0, "import: 2 stored", "import", file)
	f(0, "2 good, 0 bad", "verify")
}

// TestStoreToolsOfMooncakeByKey: without its master's word a cluster is looked into by whole keys, and what
// needs a list says what is missing.
func TestStoreToolsOfMooncakeByKey(t *testing.T) {
	r := newMoonRig(t)
	f := func(status int, words string, args ...string) {
		t.Helper()
		out, errs, got := r.run(t, "127.0.0.1:1", args...)
		if got != status || !strings.Contains(out+errs, words) {
			t.Errorf("store %q: status %d, want %d with %q\n%s%s", args, got, status, words, out, errs)
		}
	}
	key, list, file := string(r.keys[0]), filepath.Join(t.TempDir(), "keys"), filepath.Join(t.TempDir(), "some.afi")
	if err := os.WriteFile(list, []byte(key+"\r\n\nnobody's\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f(2, "no mooncake_master answers HTTP at 127.0.0.1:1", "ls")
	f(2, "nobody sums up", "stat")
	f(2, "cannot list", "export", file+"2")
	f(0, "size  not told", "stat", key)
	f(0, "8 of 16 x float32", "get", key)
	f(0, "1 good, 0 bad", "verify", key)
	f(0, "1 object in the file", "export", "--keys", list, file)
	f(0, "rm: 1 object", "rm", "--yes", "--mooncake-client", r.Addr(), key)
	f(0, "import: 1 stored", "import", file)
	f(2, "can't be used together", "export", "--keys", list, "--prefix", "x", file)
	f(2, "no such file", "export", "--keys", list+"?", file+"3")
}

// TestFleetOnMooncakeIsFound: the tools find the cluster that up runs.
func TestFleetOnMooncakeIsFound(t *testing.T) {
	r := newMoonRig(t)
	cfg := config.DefaultConfig()
	cfg.Store.Kind, cfg.Mooncake.Client, cfg.Mooncake.Admin = config.StoreMooncake, r.Addr(), r.AdminAddr()
	text, err := config.WriteTOML(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fleetFile), text, 0o600); err != nil {
		t.Fatal(err)
	}
	tool, err := discover("nowhere", []string{t.TempDir(), dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := tool.dial(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := tool.each(context.Background(), "", func(store.Entry) error { n++; return nil }); err != nil || n != len(r.keys) {
		t.Errorf("%d objects, %v", n, err)
	}
	if err := tool.close(); err != nil {
		t.Error(err)
	}
}
