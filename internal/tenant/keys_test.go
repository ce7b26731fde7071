// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// watched opens a file and follows it until the test ends.
func watched(t *testing.T, text []byte) (k *Keys, path string, reload chan os.Signal, log *lockedBuffer) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "keys.toml")
	write(t, path, text)
	log = &lockedBuffer{}
	k, err := Open(path, nil, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	reload = make(chan os.Signal)
	var wg sync.WaitGroup
	wg.Go(func() { k.Watch(ctx, time.Millisecond, reload) })
	t.Cleanup(func() { stop(); wg.Wait() })
	return k, path, reload, log
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// A file that changes is read without being asked, in either way that files change. One that is wrong, or
// gone, leaves the keys as they were, and the log says so.
func TestChangedFileIsRead(t *testing.T) {
	first, one := keyed("", "a")
	k, path, _, log := watched(t, first)
	second, two := keyed("", "a", "b")
	write(t, path, second)
	eventually(t, "the changed file is read", func() bool { return k.Set().Find(two[1]) != nil })
	if k.Set().Find(one[0]) != nil {
		t.Error("a key that is not in the file any more is still good")
	}
	write(t, path, []byte("keys = nonsense"))
	eventually(t, "the wrong file is told", func() bool { return strings.Contains(log.String(), "the keys stay as they were") })
	if k.Set().Find(two[0]) == nil {
		t.Error("a wrong file took the keys away")
	}
	third, three := keyed("", "c")
	write(t, path+".new", third)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file in its place is read", func() bool { return k.Set().Find(three[0]) != nil })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file that is gone is told", func() bool { return strings.Contains(log.String(), "no such file") })
	if k.Set().Find(three[0]) == nil {
		t.Error("a file that is gone took the keys away")
	}
}

// A signal has the file read at once, whatever its time says.
func TestReloadIsAtOnce(t *testing.T) {
	text, _ := keyed("", "a")
	path := filepath.Join(t.TempDir(), "keys.toml")
	write(t, path, text)
	k, err := Open(path, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	reload := make(chan os.Signal)
	var wg sync.WaitGroup
	wg.Go(func() { k.Watch(ctx, time.Hour, reload) })
	defer wg.Wait()
	defer stop()
	text, keys := keyed("", "b")
	write(t, path, text)
	reload <- os.Interrupt
	reload <- os.Interrupt // taken when the first has been served
	if k.Set().Find(keys[0]) == nil {
		t.Error("the file was not read")
	}
}

func TestOpenRefusals(t *testing.T) {
	dir := t.TempDir()
	text, _ := keyed("", "a")
	open := filepath.Join(dir, "open.toml")
	write(t, open, text)
	if err := os.Chmod(open, 0o606); err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(dir, "big.toml")
	write(t, big, nil)
	if err := os.Truncate(big, maxFileBytes+1); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string]string{
		filepath.Join(dir, "none"): "no such file", dir: "not a file", open: "chmod o-w", big: "larger than", "": "no key is given",
	} {
		if _, err := Open(path, nil, nil); err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want %q", path, err, words)
		}
	}
}

// Look-ups go on while the file is read again and again; each sees a whole set.
func TestLookUpsDuringReloads(t *testing.T) {
	text, keys := keyed("", "a", "b", "c")
	path := filepath.Join(t.TempDir(), "keys.toml")
	write(t, path, text)
	k, err := Open(path, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for _, key := range keys {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if k.Set().Find(key) == nil {
					t.Error("a key is gone for a moment")
					return
				}
			}
		})
	}
	for range 200 {
		if err := k.Reload(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}
