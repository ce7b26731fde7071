// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"afterimage/internal/admin"
	"afterimage/internal/config"
	"afterimage/internal/control"
)

// parsed returns an app as a command sees it.
func parsed(t *testing.T, ctx context.Context, args ...string) *app {
	t.Helper()
	p := Program{Args: args, Stdout: io.Discard, Stderr: io.Discard}
	kctx, err := p.parser().Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	return &app{Program: p, ctx: ctx, kong: kctx}
}

func TestRunRole(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a := parsed(t, ctx, "prefill", "--listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0", "--name", "p7", "--drain", "3s")
	var logged strings.Builder
	a.Stderr, a.Env = &logged, []string{"AFTERIMAGE_PREFILL_RESIDENT_BYTES=7MiB", "AFTERIMAGE_FLEET_TOKEN=hush-hush-hush-hush"}
	at := addresses{http: "prefill.listen", data: "prefill.data_listen", dataNetwork: "tcp"}
	name := func(c *config.Config) string { return c.Prefill.Name }
	err := a.runRole(config.RolePrefill, "", name, at, func(ctx context.Context, cfg config.Config, p *process) error {
		if p.name != "p7" || p.drain != 3*time.Second || p.data == nil {
			t.Errorf("got %+v, want name p7, 3 s of drain and a data listener", p)
		}
		if err := p.ready("x"); err != nil {
			t.Error(err)
		}
		served := make(chan error, 1)
		go func() { served <- p.serve(ctx, p.mux(nil, nil)) }()
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := client.Get("http://" + p.http.Addr().String() + "/readyz")
		if err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("GET /readyz: %v, %v", res, err)
		} else {
			res.Body.Close()
		}
		cancel()
		return <-served
	})
	if err != nil {
		t.Error(err)
	}
	line, _, _ := strings.Cut(logged.String(), "\n") // G01: what holds is told at the start, and no secret
	for _, want := range []string{
		"msg=configuration process=p7 ", `prefill.resident_bytes="7MiB (env AFTERIMAGE_PREFILL_RESIDENT_BYTES)"`, `server.drain="3s (flag --drain)"`,
		`fleet.token="(not shown)`, "others=default",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("the first line of the log is %q, want it to have %q", line, want)
		}
	}
	if strings.Contains(logged.String(), "hush") {
		t.Errorf("the log has the token: %s", logged.String())
	}
}

func TestRunRoleRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	never := func(context.Context, config.Config, *process) error { t.Error("the role ran"); return nil }
	name := func(*config.Config) string { return "" }
	f := func(usage bool, want string, args ...string) {
		t.Helper()
		a := parsed(t, t.Context(), args...)
		err := a.runRole(config.RoleStore, "", name, addresses{http: "store.listen"}, never)
		_, isUsage := errors.AsType[usageError](err)
		if err == nil || isUsage != usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v (usage %v), want %q (usage %v)", args, err, isUsage, want, usage)
		}
	}
	f(false, `(flag --listen): in use; stop what listens there, or give another address with --listen`, "store", "--listen", taken.Addr().String())
	f(false, "give an address of this host", "store", "--listen", "192.0.2.1:1")
	f(true, "HOST:PORT", "store", "--listen", "x")
}

func TestListenOnASocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "ai") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	l := load(t, "AFTERIMAGE_STORE_PATH="+path)
	ln, err := listen("unix", l, "store.path")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, err := listen("unix", l, "store.path"); err == nil || !strings.Contains(err.Error(), "store.path = ") {
		t.Errorf("over a live socket: got %v, want the key", err)
	}
}

func TestSignals(t *testing.T) {
	sigs, again := make(chan os.Signal), make(chan struct{})
	ctx, stop := onSignals(t.Context(), sigs, func() { close(again) })
	defer stop()
	if ctx.Err() != nil {
		t.Fatal("the context ended before any signal")
	}
	sigs <- os.Interrupt
	<-ctx.Done()
	if context.Cause(ctx) != errInterrupted {
		t.Errorf("got cause %v, want %v", context.Cause(ctx), errInterrupted)
	}
	select {
	case <-again:
		t.Fatal("the first signal counted as the second")
	default:
	}
	sigs <- os.Interrupt
	<-again
}

// fakeWorker says what a test has it say.
type fakeWorker struct {
	reason string // why it is not ready
	dead   error
}

func (w fakeWorker) Announcement() control.Announcement {
	return control.Announcement{Ready: w.reason == "", Reason: w.reason}
}
func (w fakeWorker) Alive() error { return w.dead }

// G05: a worker's probes say what its announcement says, and what its engine and its Store have come to.
func TestWorkerProbes(t *testing.T) {
	f := func(w fakeWorker, lost error, ready, live int, why string) {
		t.Helper()
		mux := (&process{role: config.RoleEncoder, registry: admin.NewRegistry()}).workerMux(func() error { return lost }, w)
		for path, want := range map[string]int{"/readyz": ready, "/livez": live, "/health": max(ready, live)} {
			got := httptest.NewRecorder()
			mux.ServeHTTP(got, httptest.NewRequest(http.MethodGet, path, nil))
			if got.Code != want || want != 200 && path == "/readyz" && !strings.Contains(got.Body.String(), why) {
				t.Errorf("%+v, %v: %s is %d %s, want %d with %q", w, lost, path, got.Code, got.Body, want, why)
			}
		}
	}
	f(fakeWorker{}, nil, 200, 200, "")
	f(fakeWorker{reason: control.Draining}, nil, 503, 200, "draining")
	f(fakeWorker{reason: control.Stalled}, nil, 503, 200, control.Stalled)
	f(fakeWorker{reason: control.Stalled, dead: errors.New("it hangs")}, nil, 503, 503, control.Stalled)
	f(fakeWorker{}, errors.New("no Store"), 503, 503, "no Store")
}
