// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/storefile"
)

// shelfTool is a Store that a command looks into. Not every Store can list or count.
type shelfTool struct {
	store.Store
	connect func(context.Context, *arena.Arena) (store.Store, error)
	path    string       // for people
	flag    string       // that names it
	named   bool         // by the user
	blind   string       // what a Store that cannot list lacks for that
	mapped  bool         // connections need memory, which others map
	arena   *arena.Arena // nil until room is needed
}

// minRoom is the arena of a tool that reads: objects are lent where that is possible, and need no room.
const minRoom = 1 << 20

func (t *shelfTool) dial(ctx context.Context) (err error) {
	if t.mapped && t.arena == nil {
		if t.arena, err = t.memory(minRoom); err != nil {
			return err
		}
	}
	if t.Store, err = t.connect(ctx, t.arena); err != nil && t.arena != nil {
		err = errors.Join(err, t.arena.Close())
		t.arena = nil
	}
	return err
}

// memory makes an arena.
func (t *shelfTool) memory(n int64) (*arena.Arena, error) {
	a, err := arena.New(arena.Config{Name: "afterimage-store-tool", Bytes: n, Mapped: t.mapped})
	if err != nil {
		return nil, fmt.Errorf("no memory for %d bytes: %w", n, err)
	}
	return a, nil
}

// lister returns the Store's listing, or an error that tells people what goes without.
func (t *shelfTool) lister() (store.Lister, error) {
	if l, ok := t.Store.(store.Lister); ok {
		return l, nil
	}
	why := ""
	if t.blind != "" {
		why = ": " + t.blind
	}
	return nil, usageError{fmt.Errorf("this Store of the kind %s cannot list what it holds%s. "+
		"get, stat, verify and rm take whole keys of it, and export a list of them (--keys)", t.Capabilities().Name, why)}
}

// Totals sums the Store up. What a Store does not count is 0, with an error that wraps errNoTotals.
func (t *shelfTool) Totals(ctx context.Context) (store.Totals, error) {
	if s, ok := t.Store.(store.Teller); ok {
		return s.Totals(ctx)
	}
	return store.Totals{MaxObject: t.Capabilities().MaxPut},
		usageError{fmt.Errorf("%w of the kind %s; look at the metrics of its own programs", errNoTotals, t.Capabilities().Name)}
}

// errNoTotals: the Store cannot be summed up.
var errNoTotals = errors.New("nobody sums up a Store")

// room sees to it that an object of n bytes can be read or stored.
func (t *shelfTool) room(ctx context.Context, n int64) error {
	if t.arena != nil && t.arena.Stats().Capacity >= n {
		return nil
	}
	want := int64(minRoom)
	for want < n {
		want *= 2
	}
	bigger, err := t.memory(want)
	if err != nil {
		return err
	}
	if err := t.close(); err != nil {
		return errors.Join(err, bigger.Close())
	}
	t.arena = bigger
	return t.dial(ctx)
}

// close ends the connection. Every Buf must be back.
func (t *shelfTool) close() error {
	err := t.Store.Close()
	if t.arena != nil {
		err = errors.Join(err, t.arena.Close())
		t.arena = nil
	}
	return err
}

// blindRoom is the most that an object may have whose Store does not tell sizes.
const blindRoom = 64 << 20

// read calls use with the object of e. A miss is an error that wraps store.ErrMiss.
func (t *shelfTool) read(ctx context.Context, e store.Entry, use func(obj []byte) error) error {
	if e.Bytes == 0 {
		e.Bytes = blindRoom
	}
	if err := t.room(ctx, e.Bytes); err != nil {
		return err
	}
	got := t.Get(ctx, []store.Want{{Key: e.Key, Bytes: int(e.Bytes)}})[0]
	if got.Err != nil {
		return got.Err
	}
	defer got.Buf.Release()
	return use(got.Buf.Bytes())
}

// listPage is how many entries are asked for at once.
const listPage = 512

// each calls f with every entry, page by page, until f fails.
func (t *shelfTool) each(ctx context.Context, prefix string, f func(store.Entry) error) error {
	for after := embedding.Key(""); ; {
		list, err := t.lister() // f may have connected again, for room
		if err != nil {
			return err
		}
		page, err := list.List(ctx, prefix, after, listPage)
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := errors.Join(context.Cause(ctx), f(e)); err != nil {
				return err
			}
			after = e.Key
		}
		if len(page) == 0 {
			return nil
		}
	}
}

// whole finds the object of a whole key, in any Store. Of what such a Store does not tell, the Entry has
// nothing.
func (t *shelfTool) whole(ctx context.Context, key embedding.Key) (store.Entry, error) {
	states, err := t.Exists(ctx, []embedding.Key{key})
	if err != nil {
		return store.Entry{}, err
	}
	if !states[0].Present {
		return store.Entry{}, fmt.Errorf("no object has the key %q, and a Store of the kind %s does not look for the beginning of one", key, t.Capabilities().Name)
	}
	return store.Entry{Key: key, Bytes: states[0].Bytes}, nil
}

// errNoKey: what was named is not there.
var errNoKey = errors.New("no key begins with")

// noKey says that no key has the beginning that was named.
func noKey(prefix string) error {
	return fmt.Errorf("%w %s; 'afterimage store ls' lists all", errNoKey, nameText(prefix))
}

// noExport refuses the name of a file of objects where a key is meant.
func noExport(name string) error {
	if st, err := os.Stat(name); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil // it can be the beginning of a key as well
	}
	defer f.Close()
	if _, err := storefile.NewReader(f); errors.Is(err, storefile.ErrNotStoreFile) {
		return nil
	}
	return usageError{fmt.Errorf("%s: is a file that 'afterimage store export' wrote, and no key of a Store; "+
		"'afterimage store import' checks its objects and stores those that are good", nameText(name))}
}

// one finds the object that a person means: by its key, its identifier, or the beginning of that.
func (t *shelfTool) one(ctx context.Context, name string) (store.Entry, error) {
	if _, err := t.lister(); err != nil {
		return t.whole(ctx, embedding.Key(name))
	}
	var found []store.Entry
	exact := false
	err := t.each(ctx, "", func(e store.Entry) error {
		_, id, _ := strings.Cut(string(e.Key), "@id:")
		switch {
		case string(e.Key) == name:
			found, exact = []store.Entry{e}, true
		case !exact && id != "" && strings.HasPrefix(id, name) && len(found) < 3:
			found = append(found, e)
		}
		return nil
	})
	switch {
	case err != nil:
		return store.Entry{}, err
	case len(found) == 0:
		return store.Entry{}, fmt.Errorf("no object has the key or identifier %q; 'afterimage store ls' lists all", name)
	case len(found) > 1:
		return store.Entry{}, usageError{fmt.Errorf("%q is the beginning of several identifiers, among them\n%s\n%s", name, nameText(found[0].Key), nameText(found[1].Key))}
	}
	return found[0], nil
}
