// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoff(t *testing.T) {
	b := backoff{min: 100 * time.Millisecond, max: 5 * time.Second}
	var got []time.Duration
	for range 8 {
		got = append(got, b.next()/time.Millisecond)
	}
	want := []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got %v ms, want %v", got, want)
		}
	}
	if b.reset(); b.next() != b.min {
		t.Errorf("after reset: got %v, want %v", b.cur, b.min)
	}
}

func TestLineWriter(t *testing.T) {
	var b bytes.Buffer
	l := &lineWriter{sink: &sink{w: &b}, prefix: "a | "}
	for _, s := range []string{"one\ntw", "o\n", "\nthree"} {
		if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("write %q: %d, %v", s, n, err)
		}
	}
	l.Flush()
	if got, want := b.String(), "a | one\na | two\na | \na | three\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := l.Last(); got != "three" {
		t.Errorf("last line: got %q", got)
	}
	// A stream without line ends is cut, not kept.
	for range 100 {
		_, _ = l.Write(bytes.Repeat([]byte("x"), 1000))
	}
	if len(l.part) > lineBytes {
		t.Errorf("%d bytes are kept of a line, want at most %d", len(l.part), lineBytes)
	}
	for range 3 * tailLines {
		_, _ = l.Write([]byte("y\n"))
	}
	if n := strings.Count(l.Tail(), "\n"); n != tailLines {
		t.Errorf("tail has %d lines, want %d", n, tailLines)
	}
}

func TestLineWriterDropsNoise(t *testing.T) {
	var b bytes.Buffer
	l := &lineWriter{sink: &sink{w: &b}, noise: []string{"harmless", "hum"}}
	for _, s := range []string{"a\nso harm", "less it is\nb\nhum", "\n", "c"} {
		_, _ = l.Write([]byte(s))
	}
	l.Flush()
	if got, want := b.String(), "a\nb\nc\n"; got != want || l.Tail() != "\n    a\n    b\n    c" {
		t.Errorf("got %q and last words %q, want %q", got, l.Tail(), want)
	}
}

func TestLifelineEndsAnOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		exits := make(chan int, 1)
		ctx, stop := lifeline(t.Context(), r, "", time.Second, func(code int) { exits <- code })
		defer stop()
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal("the context ended while the supervisor lives")
		}
		w.Close()
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), ErrOrphaned) {
			t.Errorf("got cause %v, want ErrOrphaned", context.Cause(ctx))
		}
		began := time.Now()
		if code := <-exits; code != 1 || time.Since(began) != time.Second {
			t.Errorf("exit(%d) after %v, want exit(1) after a second", code, time.Since(began))
		}
	})
}

func TestLifelineGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := io.Pipe()
		_, stop := lifeline(t.Context(), r, "", time.Second, func(int) { t.Error("exit after an orderly end") })
		stop()
		time.Sleep(2 * time.Second) // of the bubble
	})
}

func TestWithoutSupervisor(t *testing.T) {
	ctx, stop := Lifeline(t.Context())
	if ctx.Err() != nil {
		t.Error("the context has ended")
	}
	stop()
	if err := Notify(Listening{Listen: "127.0.0.1:1"}); err != nil {
		t.Error(err)
	}
	if Refuse(errors.New("x")) {
		t.Error("without a supervisor, somebody was told")
	}
	t.Setenv(EnvNotify, "x")
	if err := Notify(Listening{}); err == nil || !strings.Contains(err.Error(), EnvNotify) {
		t.Errorf("got %v, want the name of the variable", err)
	}
}

// TestRunDirSuitsSockets: whatever TMPDIR is, sockets of the run directory have paths that Linux takes, and
// the directory goes away at the end.
func TestRunDirSuitsSockets(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Chdir(t.TempDir())
	long := strings.Repeat("d", 120)
	for _, base := range []string{long, "relative"} {
		if err := os.Mkdir(base, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", base)
		dir, err := MakeRunDir()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(filepath.Join(dir, strings.Repeat("s", 31))); n > 107 || !filepath.IsAbs(dir) {
			t.Errorf("TMPDIR=%s: run directory %s, a socket in it has a path of %d bytes", base, dir, n)
		}
		if err := removeRunDir(dir); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("TMPDIR=%s: %s is left: %v", base, dir, err)
		}
	}
}

func TestRemoveRunDirRemovesNoOther(t *testing.T) {
	other := t.TempDir()
	if err := removeRunDir(other); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a directory of another name is gone: %v", err)
	}
}

func TestDialable(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		if got := Dialable(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	f("127.0.0.1:80", "127.0.0.1:80")
	f("0.0.0.0:80", "127.0.0.1:80")
	f("[::]:80", "127.0.0.1:80")
	f("[::1]:80", "[::1]:80")
	f("[fd00::1]:80", "[fd00::1]:80")
	f(":80", "127.0.0.1:80")
	f("host:80", "host:80")
}

func TestWriteTable(t *testing.T) {
	var b strings.Builder
	err := WriteTable(&b, []Status{
		{Name: "store", State: Ready, Address: "127.0.0.1:41000", PID: 12},
		{Name: "encoder-0", State: Failed, Reason: "ended: exit status 2:\n" + strings.Repeat("é", reasonBytes)},
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for i, want := range []string{"ROLE", "store      127.0.0.1:41000  12   -      ready", "encoder-0  -"} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d: got %q, want %q", i, lines[i], want)
		}
	}
	if !strings.HasSuffix(lines[2], "é…") {
		t.Errorf("a long reason ends %q, want a whole letter and an ellipsis", lines[2][len(lines[2])-10:])
	}
}

func TestNewRefuses(t *testing.T) {
	f := func(cfg Config, want string) {
		t.Helper()
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f(Config{}, "binary")
	f(Config{Binary: "x"}, "no processes")
	f(Config{Binary: "x", Specs: []Spec{fake("a", 0, "ok"), fake("a", 0, "ok")}}, "a needs a name of its own")
}
