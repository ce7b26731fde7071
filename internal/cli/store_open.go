// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
	"afterimage/internal/supervise"
)

// storeAt are the flags of every command that looks into a Store.
type storeAt struct {
	Path string `key:"store.path" placeholder:"SOCKET" help:"Unix socket of the Store. Where nobody names one, that of the fleet that 'afterimage up' runs is found."`
	File string `name:"config" short:"c" placeholder:"FILE" env:"AFTERIMAGE_CONFIG" help:"TOML file to read store.path from. [$$AFTERIMAGE_CONFIG]"`
	JSON bool   `help:"Print JSON instead of text."`
}

// find returns the socket of the Store to look into, and whether the user named it.
func (s *storeAt) find(a *app) (path string, named bool, err error) {
	l, err := a.loadFlags("", s.File)
	if err != nil {
		return "", false, err
	}
	path = l.Store.Path
	if l.Source("store.path") != "default" {
		return path, true, answers(path)
	}
	path, err = discover(path, supervise.RunDirs())
	return path, false, err
}

// discover returns the only socket that answers: usual, or that of a fleet.
func discover(usual string, runDirs []string) (string, error) {
	sockets := []string{usual}
	for _, dir := range runDirs {
		sockets = append(sockets, filepath.Join(dir, socketName))
	}
	var live []string
	for _, p := range sockets {
		if answers(p) == nil {
			live = append(live, p)
		}
	}
	switch len(live) {
	case 0:
		return "", fmt.Errorf("no Store of this user runs on this host: nothing answers at %s, and no 'afterimage up' runs; start one, or name its socket with --path", usual)
	case 1:
		return live[0], nil
	}
	return "", usageError{fmt.Errorf("several Stores run on this host; name one with --path:\n%s", strings.Join(live, "\n"))}
}

// answers says why nobody listens at a socket.
func answers(path string) error {
	nc, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return nc.Close()
	}
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		err = no
	}
	return fmt.Errorf("no Store answers at %s: %w; start one with 'afterimage up' or 'afterimage store', or name another with --path", path, err)
}

// shelfTool is a Store that a command looks into.
type shelfTool struct {
	store.Store
	store.Lister
	store.Teller
	path  string
	named bool         // by the user
	arena *arena.Arena // nil until room is needed
}

// minRoom is the arena of a tool that reads: objects are lent where that is possible, and need no room.
const minRoom = 1 << 20

// open connects to the Store. The caller must close the tool.
func (s *storeAt) open(ctx context.Context, a *app) (*shelfTool, error) {
	path, named, err := s.find(a)
	if err != nil {
		return nil, err
	}
	t := &shelfTool{path: path, named: named}
	if err := t.dial(ctx); err != nil {
		return nil, err
	}
	if _, err := t.Totals(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the Store at %s does not answer: %w", path, err), t.close())
	}
	return t, nil
}

func (t *shelfTool) dial(ctx context.Context) error {
	c, err := ram.Dial(ctx, ram.ClientConfig{Path: t.path, Arena: t.arena})
	if err != nil {
		return usageError{fmt.Errorf("--path %s: %w", t.path, err)}
	}
	t.Store, t.Lister, t.Teller = c, c, c
	return nil
}

// room sees to it that an object of n bytes can be read or stored.
func (t *shelfTool) room(ctx context.Context, n int64) error {
	if t.arena != nil && t.arena.Stats().Capacity >= n {
		return nil
	}
	want := int64(minRoom)
	for want < n {
		want *= 2
	}
	bigger, err := arena.New(arena.Config{Name: "afterimage-store-tool", Bytes: want})
	if err != nil {
		return fmt.Errorf("no memory for an object of %d bytes: %w", n, err)
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

// read calls use with the object of e. A miss is an error that wraps store.ErrMiss.
func (t *shelfTool) read(ctx context.Context, e store.Entry, use func(obj []byte) error) error {
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
		page, err := t.List(ctx, prefix, after, listPage)
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

// one finds the object that a person means: by its key, its identifier, or the beginning of that.
func (t *shelfTool) one(ctx context.Context, name string) (store.Entry, error) {
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

// printJSON writes v as one line.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// nameText writes a key or a tenant for people. Both can come from anywhere, and must not speak to the
// terminal.
func nameText[T ~string](name T) string {
	if q := strconv.Quote(string(name)); q != `"`+string(name)+`"` {
		return q
	}
	return string(name)
}

// counted writes n things for people.
func counted[N int | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// sizeText writes bytes for people.
func sizeText(n int64) string {
	switch f := float64(n); {
	case n >= int64(config.GiB):
		return fmt.Sprintf("%.1f GiB", f/float64(config.GiB))
	case n >= int64(config.MiB):
		return fmt.Sprintf("%.1f MiB", f/float64(config.MiB))
	case n >= 1024:
		return fmt.Sprintf("%.1f KiB", f/1024)
	}
	return fmt.Sprintf("%d B", n)
}

// fileFault says what is wrong with a file that the user named, without the path twice.
func fileFault(name string, err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		err = pe.Err
	}
	return usageError{fmt.Errorf("%s: %w", name, err)}
}
