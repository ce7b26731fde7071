// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
)

// blind is a Store that can neither list nor count, and tells no sizes.
type blind struct{ store.Store }

func (b blind) Exists(ctx context.Context, keys []embedding.Key) ([]store.State, error) {
	states, err := b.Store.Exists(ctx, keys)
	for i := range states {
		states[i].Bytes = 0
	}
	return states, err
}

// newBlindTool is a tool on the rig's Store that sees no more of it than every Store shows.
func newBlindTool(t *testing.T, r *shelfRig) *shelfTool {
	t.Helper()
	tool := &shelfTool{path: r.path, flag: "--path " + r.path, named: true, connect: func(ctx context.Context, memory *arena.Arena) (store.Store, error) {
		c, err := ram.Dial(ctx, ram.ClientConfig{Path: r.path, Arena: memory})
		return blind{c}, err
	}}
	if err := tool.dial(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tool.close(); err != nil {
			t.Error(err)
		}
	})
	return tool
}

// TestWholeKeysOfAnyStore: what needs no listing works with every Store, and what does says so.
func TestWholeKeysOfAnyStore(t *testing.T) {
	r := newShelfRig(t, 8<<20)
	key, obj := soundObject(t, embedding.A1, 1)
	r.put(t, key, obj, store.PutOptions{})
	tool, ctx := newBlindTool(t, r), t.Context()

	e, err := tool.one(ctx, string(key))
	if err != nil || e.Key != key {
		t.Fatalf("one: %+v, %v", e, err)
	}
	if err := tool.read(ctx, e, func(got []byte) error {
		if !bytes.Equal(got, obj) {
			t.Errorf("read %d bytes, want the object's %d", len(got), len(obj))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	if err := (&storeStatCmd{}).little(e, &out); err != nil || !strings.Contains(out.String(), "not told") || strings.Contains(out.String(), "age") {
		t.Errorf("stat: %v\n%s", err, out.String())
	}
	m := newMeter(&out, "verify")
	if v, err := (&storeVerifyCmd{Prefix: string(key)}).verify(ctx, tool, m); err != nil || v.Good != 1 || v.Bytes != int64(len(obj)) {
		t.Errorf("verify: %+v, %v", v, err)
	}
	if keys, _, err := (&storeRmCmd{Keys: []string{string(key)}}).find(ctx, tool); err != nil || len(keys) != 1 {
		t.Errorf("rm: %q, %v", keys, err)
	}

	f := func(what, words string, err error) {
		t.Helper()
		if _, usage := errors.AsType[usageError](err); err == nil || !usage && what != "one" || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", what, err, words)
		}
	}
	_, err = tool.one(ctx, "01")
	f("one", "does not look for the beginning", err)
	f("ls", "of the kind ram cannot list what it holds. get, stat, verify and rm take whole keys", (&storeLsCmd{}).list(ctx, tool, &out))
	f("stat", "nobody sums up a Store of the kind ram", (&storeStatCmd{}).totals(ctx, tool, &out))
	_, err = (&storeVerifyCmd{}).verify(ctx, tool, m)
	f("verify", "cannot list", err)
	_, _, err = (&storeRmCmd{Prefix: "embedding@"}).find(ctx, tool)
	f("rm", "cannot list", err)
}

// TestMooncakeIsNotLookedInto: a configuration for Mooncake is not answered from some ram Store that runs.
func TestMooncakeIsNotLookedInto(t *testing.T) {
	r := newShelfRig(t, 1<<20)
	for _, c := range []struct {
		args  []string
		kind  string
		words string
	}{
		{nil, "mooncake", "no mooncake_client answers at 127.0.0.1:1"},
		{[]string{"--mooncake-client", "127.0.0.1:2"}, "mooncake", "no mooncake_client answers at 127.0.0.1:2"},
		{[]string{"--store-kind", "mooncake", "--path", r.path}, "ram", "no mooncake_client answers at 127.0.0.1:1"},
		{[]string{"--mooncake-client", "127.0.0.1:2"}, "ram", "add --store-kind mooncake"},
		{[]string{"--store-kind", "none"}, "ram", "--store-kind none: write ram or mooncake"},
	} {
		var out, errs bytes.Buffer
		p := Program{Args: append([]string{"store", "ls"}, c.args...), Stdout: &out, Stderr: &errs,
			Env: []string{"AFTERIMAGE_STORE_KIND=" + c.kind, "AFTERIMAGE_MOONCAKE_CLIENT=127.0.0.1:1"}}
		if status := p.Main(t.Context()); status == exitOK || !strings.Contains(errs.String(), c.words) {
			t.Errorf("%q: status %d: %s", c.args, status, errs.String())
		}
	}
}
