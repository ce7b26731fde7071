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
	"syscall"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/config"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
	"afterimage/internal/supervise"
)

// storeAt are the flags of every command that looks into a Store.
type storeAt struct {
	Path   string `key:"store.path" placeholder:"SOCKET" help:"Unix socket of a Store of the kind ram. Where nobody names a Store, that of the fleet that 'afterimage up' runs is found."`
	Kind   string `name:"store-kind" key:"store.kind" placeholder:"KIND" help:"Kind of the Store: ram or mooncake."`
	Client string `name:"mooncake-client" key:"mooncake.client" placeholder:"HOST:PORT" help:"With --store-kind mooncake: where this host's mooncake_client takes calls."`
	Admin  string `name:"mooncake-admin" key:"mooncake.admin" placeholder:"HOST:PORT" help:"With --store-kind mooncake: where mooncake_master answers HTTP, which is what lists objects and sums the Store up. Empty: port 9003 of the master that MOONCAKE_CONFIG_PATH names."`
	File   string `name:"config" short:"c" placeholder:"FILE" env:"AFTERIMAGE_CONFIG" help:"TOML file to read the Store's place from. [$$AFTERIMAGE_CONFIG]"`
	JSON   bool   `help:"Print JSON instead of text."`
}

// find returns the Store to look into, without a connection.
func (s *storeAt) find(a *app) (*shelfTool, error) {
	l, err := a.loadFlags("", s.File)
	if err != nil {
		return nil, err
	}
	byPath := l.Source("store.path") != "default"
	switch {
	case s.Kind != "" && s.Kind != config.StoreRAM && s.Kind != config.StoreMooncake:
		return nil, usageError{fmt.Errorf("--store-kind %s: write %s or %s", s.Kind, config.StoreRAM, config.StoreMooncake)}
	case l.Store.Kind == config.StoreMooncake && (!byPath || s.Kind != ""):
		return mooncakeShelf(l, a.Env, true)
	case l.Store.Kind != config.StoreMooncake && s.Client != "":
		return nil, usageError{errors.New("--mooncake-client: add --store-kind mooncake")}
	case byPath:
		return ramShelf(l.Store.Path, true), answers(l.Store.Path)
	}
	return discover(l.Store.Path, supervise.RunDirs())
}

// ramShelf is the Store at a socket.
func ramShelf(path string, named bool) *shelfTool {
	return &shelfTool{path: path, flag: "--path " + path, named: named, connect: func(ctx context.Context, memory *arena.Arena) (store.Store, error) {
		c, err := ram.Dial(ctx, ram.ClientConfig{Path: path, Arena: memory})
		if err != nil {
			return nil, usageError{fmt.Errorf("--path %s: %w", path, err)}
		}
		return c, nil
	}}
}

// discover returns the only Store that answers: the one at the usual socket, or that of a fleet.
func discover(usual string, runDirs []string) (*shelfTool, error) {
	var live []*shelfTool
	if answers(usual) == nil {
		live = append(live, ramShelf(usual, false))
	}
	for _, dir := range runDirs {
		if socket := filepath.Join(dir, socketName); answers(socket) == nil {
			live = append(live, ramShelf(socket, false))
		} else if l, err := config.Load(config.Input{File: filepath.Join(dir, fleetFile)}); err == nil && l.Store.Kind == config.StoreMooncake {
			if t, err := mooncakeShelf(l, nil, false); err == nil {
				live = append(live, t)
			}
		}
	}
	switch len(live) {
	case 0:
		return nil, fmt.Errorf("no Store of this user runs on this host: nothing answers at %s, and no 'afterimage up' runs; start one, or name its socket with --path", usual)
	case 1:
		return live[0], nil
	}
	several := "several Stores run on this host; name one:"
	for _, t := range live {
		several += "\n" + t.flag
	}
	return nil, usageError{errors.New(several)}
}

// answers says why nobody listens at a socket.
func answers(path string) error {
	if st, err := os.Stat(path); path == "" || err == nil && st.Mode().Type() != os.ModeSocket {
		return usageError{fmt.Errorf("%q is no unix socket; name that of a Store with --path", path)}
	}
	nc, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return nc.Close()
	}
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		err = no
	}
	return fmt.Errorf("no Store answers at %s: %w; start one with 'afterimage up' or 'afterimage store', or name another with --path", path, err)
}

// open connects to the Store. The caller must close the tool.
func (s *storeAt) open(ctx context.Context, a *app) (*shelfTool, error) {
	t, err := s.find(a)
	if err != nil {
		return nil, err
	}
	if err := t.dial(ctx); err != nil {
		return nil, err
	}
	if _, err := t.Totals(ctx); err != nil && !errors.Is(err, errNoTotals) {
		return nil, errors.Join(fmt.Errorf("the Store at %s does not answer: %w", t.path, err), t.close())
	}
	return t, nil
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
	return usageError{fmt.Errorf("%s: %w", name, causeOf(err))}
}

// causeOf drops the operation and path that package os puts before a cause.
func causeOf(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}
