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
	if l.Store.Kind == config.StoreMooncake {
		return "", false, usageError{fmt.Errorf("store.kind = %q (%s): a Mooncake cluster cannot list what it holds, and these commands look into a Store of the kind %s; "+
			"name one with --path, or look at the cluster with 'afterimage doctor --store mooncake'", l.Store.Kind, l.Source("store.kind"), config.StoreRAM)}
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

// open connects to the Store. The caller must close the tool.
func (s *storeAt) open(ctx context.Context, a *app) (*shelfTool, error) {
	path, named, err := s.find(a)
	if err != nil {
		return nil, err
	}
	t := &shelfTool{path: path, named: named, connect: func(ctx context.Context, memory *arena.Arena) (store.Store, error) {
		c, err := ram.Dial(ctx, ram.ClientConfig{Path: path, Arena: memory})
		if err != nil {
			return nil, usageError{fmt.Errorf("--path %s: %w", path, err)}
		}
		return c, nil
	}}
	if err := t.dial(ctx); err != nil {
		return nil, err
	}
	if _, err := t.Totals(ctx); err != nil && !errors.Is(err, errNoTotals) {
		return nil, errors.Join(fmt.Errorf("the Store at %s does not answer: %w", path, err), t.close())
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
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		err = pe.Err
	}
	return usageError{fmt.Errorf("%s: %w", name, err)}
}
