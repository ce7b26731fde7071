// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Keys holds the Set that is in force. Methods may be called from any goroutine.
type Keys struct {
	path  string
	clear []string
	log   *slog.Logger
	set   atomic.Pointer[Set]

	mu     sync.Mutex // guards what follows, and is held while the file is read
	loaded stamp      // of what was read last, whether it was of use or not
}

// stamp tells one state of a file from another.
type stamp struct {
	written time.Time
	bytes   int64
	info    os.FileInfo // for os.SameFile: a file that was put in the place of another may have its time
}

func (s stamp) same(t stamp) bool {
	return s.written.Equal(t.written) && s.bytes == t.bytes && (s.info == nil) == (t.info == nil) && (s.info == nil || os.SameFile(s.info, t.info))
}

// Open reads the keys of a file, "" for none, and those given in the clear. There is at least one key in
// the result.
func Open(path string, clear []string, log *slog.Logger) (*Keys, error) {
	k := &Keys{path: path, clear: clear, log: log}
	if path == "" {
		set, err := Clear(clear)
		if err == nil && set.Len() == 0 {
			err = errors.New("no key is given")
		}
		k.set.Store(set)
		return k, err
	}
	return k, k.Reload()
}

// Set returns the keys in force.
func (k *Keys) Set() *Set { return k.set.Load() }

// Reload reads the file. What is wrong with it leaves the keys as they were.
func (k *Keys) Reload() error {
	if k.path == "" {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	set, at, err := k.read()
	k.loaded = at
	if err != nil {
		return fmt.Errorf("keys file %s: %w", k.path, err)
	}
	k.set.Store(set)
	return nil
}

func (k *Keys) read() (*Set, stamp, error) {
	at, err := k.look()
	switch {
	case err != nil:
		return nil, at, err
	case !at.info.Mode().IsRegular():
		return nil, at, errors.New("not a file")
	case at.info.Mode().Perm()&0o002 != 0:
		return nil, at, errors.New("everybody on this host may write it; chmod o-w it")
	case at.bytes > maxFileBytes:
		return nil, at, fmt.Errorf("larger than %d bytes, so hardly a file of keys", maxFileBytes)
	}
	text, err := os.ReadFile(k.path)
	if err != nil {
		return nil, at, plain(err)
	}
	set, err := Parse(text, k.clear)
	return set, at, err
}

func (k *Keys) look() (stamp, error) {
	st, err := os.Stat(k.path)
	if err != nil {
		return stamp{}, plain(err)
	}
	return stamp{st.ModTime(), st.Size(), st}, nil
}

// plain drops the operation and path that package os puts before a cause.
func plain(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Watch follows the file until ctx ends: it looks every so often, and reads it at once on reload. A file
// that changes is read when it has stayed the same from one look to the next, since it may be half written.
func (k *Keys) Watch(ctx context.Context, every time.Duration, reload <-chan os.Signal) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var seen stamp
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload:
			k.tell(k.Reload())
		case <-tick.C:
			if k.path == "" {
				continue
			}
			now, _ := k.look() // a file that is gone is told as one that cannot be read
			k.mu.Lock()
			changed := !now.same(k.loaded)
			k.mu.Unlock()
			if changed && now.same(seen) {
				k.tell(k.Reload())
			}
			seen = now
		}
	}
}

// tell logs what became of a reload.
func (k *Keys) tell(err error) {
	if err != nil {
		k.log.Error("the keys stay as they were", "err", err)
		return
	}
	k.log.Info("keys read", "file", k.path, "keys", k.Set().Len())
}
