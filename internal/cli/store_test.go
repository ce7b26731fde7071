// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
)

// shelfRig is a Store on a socket, and a client to fill it.
type shelfRig struct {
	path   string
	server *ram.Server
	client *ram.Client
	arena  *arena.Arena
}

func newShelfRig(t *testing.T, maxBytes int64) *shelfRig {
	t.Helper()
	r := &shelfRig{path: filepath.Join(t.TempDir(), "s.sock")}
	var err error
	if r.server, err = ram.NewServer(ram.Config{MaxBytes: maxBytes, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}); err != nil {
		t.Fatal(err)
	}
	ln, err := ram.Listen(r.path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(context.Background(), ln) }()
	if r.arena, err = arena.New(arena.Config{Name: "rig", Bytes: 4 << 20}); err != nil {
		t.Fatal(err)
	}
	if r.client, err = ram.Dial(t.Context(), ram.ClientConfig{Path: r.path, Arena: r.arena}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range []error{r.client.Close(), r.arena.Close(), r.server.Close(), <-served} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// put stores bytes as they are.
func (r *shelfRig) put(t *testing.T, key embedding.Key, obj []byte, opts store.PutOptions) {
	t.Helper()
	buf, err := r.arena.Reserve(len(obj))
	if err != nil {
		t.Fatal(err)
	}
	copy(buf.Bytes(), obj)
	buf.Commit()
	defer buf.Release()
	if err := r.client.Put(t.Context(), key, buf, opts); err != nil {
		t.Fatal(err)
	}
}

// fill stores n sound objects, v3 and a1 by turns.
func (r *shelfRig) fill(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		key, obj := soundObject(t, []embedding.Protocol{embedding.V3, embedding.A1}[i%2], i)
		r.put(t, key, obj, store.PutOptions{Tenant: []string{"", "acme"}[i%2], TTL: time.Duration(i%3) * time.Hour})
	}
}

func soundObject(t *testing.T, p embedding.Protocol, i int) (embedding.Key, []byte) {
	t.Helper()
	l := embedding.Layout{Parts: []embedding.Part{{Tokens: []int32{1}}, {Rows: 8 + i, Positions: 8 + i}}}
	m := embedding.Meta{Rows: 8 + i, Cols: 16, DType: embedding.Float32, Layout: l}
	key := embedding.Namespace{Model: "m", Encoder: "e", DType: m.DType, Protocol: p}.Key(embedding.Identifier(fmt.Sprintf("%02d", i)))
	obj := make([]byte, p.ObjectBytes(l, m.Cols, m.DType))
	obj[len(obj)-4] = byte(i)
	if err := p.Seal(obj, key, m); err != nil {
		t.Fatal(err)
	}
	return key, obj
}

// run runs the program on the rig's Store.
func (r *shelfRig) run(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	p := Program{Args: append([]string{"store"}, args...), Env: []string{"AFTERIMAGE_STORE_PATH=" + r.path}, Stdout: &out, Stderr: &errs}
	status = p.Main(t.Context())
	return out.String(), errs.String(), status
}

// must runs the program, which must succeed.
func (r *shelfRig) must(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, status := r.run(t, args...)
	if status != 0 || stderr != "" {
		t.Fatalf("store %q: status %d\n%s%s", args, status, stdout, stderr)
	}
	return stdout
}

// decode reads JSON that a command printed.
func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}

func TestStoreLsAndStat(t *testing.T) {
	r := newShelfRig(t, 8<<20)
	if got := r.must(t, "ls"); !strings.Contains(got, "0 objects, 0 B") {
		t.Errorf("empty: %s", got)
	}
	r.fill(t, 6)
	for _, c := range []struct {
		args []string
		want int
	}{{nil, 6}, {[]string{"--limit", "2"}, 2}, {[]string{"embedding@"}, 6}} {
		lines := strings.Split(strings.TrimSpace(r.must(t, append([]string{"ls", "--json"}, c.args...)...)), "\n")
		if len(lines) != c.want {
			t.Errorf("%q: %d lines, want %d", c.args, len(lines), c.want)
		}
		for _, line := range lines {
			if e := decode[entryJSON](t, line); e.Bytes == 0 || e.Key == "" || (e.Tenant == "acme") != strings.Contains(string(e.Key), "a1@id") {
				t.Errorf("%s", line)
			}
		}
	}
	if got := r.must(t, "ls", "--limit", "2"); !strings.Contains(got, "there are more") || !strings.Contains(got, "acme") {
		t.Errorf("table:\n%s", got)
	}
	sum := decode[store.Totals](t, r.must(t, "stat", "--json"))
	if sum.Objects != 6 || sum.LimitBytes != 8<<20 || sum.Puts != 6 {
		t.Errorf("totals %+v", sum)
	}
	if got := r.must(t, "stat"); !strings.Contains(got, r.path) {
		t.Errorf("stat:\n%s", got)
	}
	if e := decode[entryJSON](t, r.must(t, "stat", "--json", "05")); e.TTL < 7000 || e.Tenant != "acme" {
		t.Errorf("stat of one: %+v", e)
	}
	for _, c := range []struct {
		key    string
		status int
	}{{"0", exitUsage}, {"zz", exitFailure}} {
		if _, stderr, status := r.run(t, "stat", c.key); status != c.status || !strings.Contains(stderr, c.key) {
			t.Errorf("stat %s: status %d, %s", c.key, status, stderr)
		}
	}
}

// A key can be anything, and must not speak to the terminal.
func TestStoreShowsHostileNames(t *testing.T) {
	r := newShelfRig(t, 1<<20)
	r.put(t, "\x1b[2J@id:evil\n", []byte("x"), store.PutOptions{Tenant: "\x1b]0;t\a"})
	all := r.must(t, "ls") + r.must(t, "stat", "evil")
	stdout, stderr, _ := r.run(t, "verify")
	if all += stdout + stderr; strings.ContainsAny(all, "\x1b\a") || !strings.Contains(all, `"\x1b[2J@id:evil\n"`) {
		t.Errorf("printed as it is: %q", all)
	}
}

func TestStoreGet(t *testing.T) {
	r := newShelfRig(t, 8<<20)
	r.fill(t, 2)
	for i, p := range []embedding.Protocol{embedding.V3, embedding.A1} {
		key, obj := soundObject(t, p, i)
		file := filepath.Join(t.TempDir(), "obj")
		h := decode[headJSON](t, r.must(t, "get", "--json", "-o", file, string(key)))
		if !h.Sound || h.Protocol != p || h.Rows != 8+i || h.Cols != 16 || h.DType != "float32" || (h.Layout == nil) != (p == embedding.V3) {
			t.Errorf("%s: %+v", p, h)
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, obj) {
			t.Errorf("%s: the file differs from the object: %v", p, err)
		}
		if _, stderr, status := r.run(t, "get", "-o", file, string(key)); status != exitUsage || !strings.Contains(stderr, "exists") {
			t.Errorf("over a file: status %d, %s", status, stderr)
		}
		if got, stderr, status := r.run(t, "get", "-o", "-", string(key)); status != 0 || got != string(obj) || !strings.Contains(stderr, "sound") {
			t.Errorf("%s: on standard output: status %d, %d bytes, %s", p, status, len(got), stderr)
		}
	}
	if got := r.must(t, "get", "01"); !strings.Contains(got, "1 token, 9 rows") {
		t.Errorf("get:\n%s", got)
	}
}

// Objects that a Store cannot refuse at PUT are found, counted by reason and removed if that is wanted.
func TestStoreVerify(t *testing.T) {
	r := newShelfRig(t, 8<<20)
	if got := r.must(t, "verify"); !strings.Contains(got, "the Store has no objects") {
		t.Errorf("an empty Store: %s", got)
	}
	r.fill(t, 4)
	if got := r.must(t, "verify"); !strings.Contains(got, "4 good, 0 bad") {
		t.Errorf("all good: %s", got)
	}
	_, a1 := soundObject(t, embedding.A1, 50)
	other, _ := soundObject(t, embedding.A1, 51)
	r.put(t, other, a1, store.PutOptions{}) // of another key
	key, v3 := soundObject(t, embedding.V3, 52)
	copy(v3[len(v3)-4:], "\x00\x00\xc0\x7f") // NaN
	r.put(t, key, v3, store.PutOptions{})
	r.put(t, "embedding@model:m@protocol:v3@id:x", []byte("no object"), store.PutOptions{})
	stdout, stderr, status := r.run(t, "verify", "--json")
	v := decode[verified](t, stdout)
	if status != exitFailure || v.Good != 4 || v.Bad["foreign"] != 1 || v.Bad["not finite"] != 1 || v.Bad["malformed"] != 1 || v.Removed != 0 || len(v.Faults) != 3 {
		t.Errorf("status %d, %+v\n%s", status, v, stderr)
	}
	if _, stderr, status := r.run(t, "get", string(key)); status != exitFailure || !strings.Contains(stderr, "not finite") {
		t.Errorf("get of a bad one: status %d, %s", status, stderr)
	}
	if v := decode[verified](t, r.must(t, "verify", "--rm", "--json")); v.Removed != 3 {
		t.Errorf("--rm: %+v", v)
	}
	if got := r.must(t, "verify"); !strings.Contains(got, "4 good, 0 bad") {
		t.Errorf("afterwards: %s", got)
	}
}

// A key that was named and is not there is no success, and the name of a file is no key.
func TestStoreNamesNothing(t *testing.T) {
	r := newShelfRig(t, 8<<20)
	file := filepath.Join(t.TempDir(), "all.afx")
	f := func(want int, words string, args ...string) {
		t.Helper()
		if stdout, stderr, status := r.run(t, args...); status != want || !strings.Contains(stderr, words) {
			t.Errorf("store %q: status %d, want %d with %q\n%s%s", args, status, want, words, stdout, stderr)
		}
	}
	f(exitFailure, "no key begins with embedding@", "ls", "embedding@") // of an empty Store, too
	r.fill(t, 2)
	r.must(t, "export", file)
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"verify"}, {"verify", "--json"}, {"export", file + "2", "--prefix"}} {
		f(exitFailure, "no key begins with other; 'afterimage store ls' lists all\n", append(args, "other")...)
	}
	for _, word := range []string{"get", "stat"} {
		f(exitFailure, `no object has the key or identifier "other"`, word, "other")
	}
	for _, word := range []string{"ls", "stat", "get", "verify"} {
		f(exitUsage, "all.afx: is a file that 'afterimage store export' wrote", word, file)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("embedding", []byte("a file of another kind"), 0o600); err != nil {
		t.Fatal(err)
	}
	f(exitOK, "", "verify", "embedding")
}

func TestDiscoverStore(t *testing.T) {
	one, two := newShelfRig(t, 1<<20), newShelfRig(t, 1<<20)
	dirs := []string{t.TempDir()} // of a fleet
	if err := os.Link(one.path, filepath.Join(dirs[0], socketName)); err != nil {
		t.Fatal(err)
	}
	f := func(usual string, dirs []string, want, words string) {
		t.Helper()
		var got string
		tool, err := discover(usual, dirs)
		if tool != nil {
			got = tool.path
		}
		if got != want || words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("got %q, %v", got, err)
		}
	}
	f("nowhere", []string{t.TempDir()}, "", "nothing answers at nowhere")
	f(two.path, []string{t.TempDir()}, two.path, "")
	f("nowhere", dirs, filepath.Join(dirs[0], socketName), "")
	f(two.path, dirs, "", "several Stores")
}

func TestStoreRm(t *testing.T) {
	r := newShelfRig(t, 8<<20)
	r.fill(t, 6)
	f := func(status int, mend string, args ...string) {
		t.Helper()
		_, stderr, got := r.run(t, append([]string{"rm"}, args...)...)
		if got != status || !strings.Contains(stderr, mend) {
			t.Errorf("rm %q: status %d, %s", args, got, stderr)
		}
	}
	f(exitUsage, "in one way")
	f(exitUsage, "in one way", "--all", "--prefix", "x")
	f(exitUsage, "add --yes", "--all")
	f(exitFailure, "nothing was removed", "--yes", "not there")
	if n := r.server.Stats().Objects; n != 6 {
		t.Fatalf("%d objects left of 6", n)
	}
	key, _ := soundObject(t, embedding.V3, 0)
	if got := r.must(t, "rm", "--yes", string(key)); !strings.Contains(got, "rm: 1 object, ") {
		t.Error(got)
	}
	if got := r.must(t, "rm", "-y", "--json", "--prefix", strings.TrimSuffix(string(key), "00")); !strings.Contains(got, `"removed":2`) {
		t.Error(got)
	}
	r.must(t, "rm", "-y", "--all")
	if n := r.server.Stats().Objects; n != 0 {
		t.Errorf("%d objects left", n)
	}
}

// TestShelfConfig: a tenant over store.tenant_quota_bytes pays for itself, and nobody else does.
func TestShelfConfig(t *testing.T) {
	a, err := arena.New(arena.Config{Name: "rig", Bytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	cfg := config.Store{Bytes: config.MiB, TenantQuotaBytes: 100 * config.KiB}
	local, err := ram.NewLocal(shelfConfig(cfg, slog.New(slog.DiscardHandler)), a)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	for _, o := range []struct {
		key    embedding.Key
		tenant string
	}{{"first", "t"}, {"nobody's", ""}, {"second", "t"}} {
		buf, err := a.Reserve(60 << 10)
		if err != nil {
			t.Fatal(err)
		}
		buf.Commit()
		if err := local.Put(t.Context(), o.key, buf, store.PutOptions{Tenant: o.tenant}); err != nil {
			t.Errorf("%s: %v", o.key, err)
		}
		buf.Release()
	}
	states, err := local.Exists(t.Context(), []embedding.Key{"first", "nobody's", "second"})
	if err != nil || states[0].Present || !states[1].Present || !states[2].Present {
		t.Errorf("%+v, %v; want only the tenant's own first object gone", states, err)
	}
}
