// SPDX-License-Identifier: Apache-2.0

//go:build !race

// The tests of `up` look at another program, which the race detector of this one does not see.

package system

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/client"
	"afterimage/internal/model"
)

// root is the folder of the project, in whose .cache `make deps` puts what programs find from there.
const root = "../.."

// program builds the real program, once, and returns its path.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "afterimage-system-")
	if err != nil {
		return "", err
	}
	atEnd = append(atEnd, func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "bin", "afterimage")
	build := exec.Command("go", "build", "-o", path, "afterimage/cmd/afterimage")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// command prepares a run of the program in the project's folder, away from this environment's settings.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = root
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "AFTERIMAGE_") || strings.HasPrefix(kv, "AFTERIMAGE_ENGINE_DIR=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	return cmd
}

// run runs the program to its end.
func run(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := command(t, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// needEngine fails a test that cannot run for want of what `make deps` fetches.
func needEngine(t *testing.T) {
	t.Helper()
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	found, err := filepath.Glob(filepath.Join(root, ".cache", "engine", "*-"+arch, "libllama.so.0"))
	if err != nil || len(found) == 0 && os.Getenv("AFTERIMAGE_ENGINE_DIR") == "" {
		t.Fatal("the native libraries are missing: run `make deps`")
	}
}

// pair writes a tiny random model pair and returns the flags that name it.
func pair(t *testing.T, p model.Projector) []string {
	t.Helper()
	return pairOf(t, model.RandomOptions{Projector: p, Seed: 1})
}

// pairOf is pair for any random pair.
func pairOf(t *testing.T, o model.RandomOptions) []string {
	t.Helper()
	needEngine(t)
	dir := t.TempDir()
	if err := model.WriteRandom(dir, o); err != nil {
		t.Fatal(err)
	}
	return []string{"--model", filepath.Join(dir, model.TextFile), "--mmproj", filepath.Join(dir, model.ProjectorFile)}
}

// small keeps the memory of a fleet small: arenas are filled when they are made.
var small = []string{"up", "--listen", "127.0.0.1:0", "--encoder-arena-bytes", "24MiB", "--encoder-cache-bytes", "8MiB",
	"--prefill-arena-bytes", "24MiB", "--store-bytes", "24MiB"}

// output collects what a program prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) { o.mu.Lock(); defer o.mu.Unlock(); return o.b.Write(p) }
func (o *output) String() string              { o.mu.Lock(); defer o.mu.Unlock(); return o.b.String() }

// upRun is one `up` with its roles.
type upRun struct {
	cmd       *exec.Cmd
	runtime   string // the run directory lies in it
	out, errs output
	exited    chan struct{}
	address   map[string]string // of each role's HTTP server, by name
	url       string            // of the gateway
	client    *client.Client
}

// launch starts `up` and returns at once. When the test ends, nothing of it may be left.
func launch(t *testing.T, args ...string) *upRun {
	t.Helper()
	dir, err := os.MkdirTemp("", "ai") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	u := &upRun{cmd: command(t, append(append([]string{}, small...), args...)...), runtime: dir, exited: make(chan struct{})}
	u.cmd.Env = append(u.cmd.Env, "XDG_RUNTIME_DIR="+dir)
	u.cmd.Stdout, u.cmd.Stderr = &u.out, &u.errs
	u.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	u.cmd.WaitDelay = 5 * time.Second
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(u.exited); _ = u.cmd.Wait() }()
	t.Cleanup(func() {
		_ = u.cmd.Process.Kill()
		<-u.exited
		u.gone(t, 5*time.Second)
		os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("up printed:\n%s\nand:\n%s", u.out.String(), u.errs.String())
		}
	})
	return u
}

// tableRow is a process of the table that up prints.
var tableRow = regexp.MustCompile(`(?m)^(\S+) +(127\.0\.0\.1:\d+) +(\d+) +(\S.*?) +ready$`)

// startUp starts `up` and waits until it is ready.
func startUp(t *testing.T, args ...string) *upRun {
	t.Helper()
	u := launch(t, args...)
	eventually(t, "up is ready", func() bool {
		select {
		case <-u.exited:
			t.Fatalf("up ended with %v", u.cmd.ProcessState)
		default:
		}
		return strings.HasSuffix(u.out.String(), "\nafterimage is ready\n")
	})
	u.address = map[string]string{}
	for _, row := range tableRow.FindAllStringSubmatch(u.out.String(), -1) {
		u.address[row[1]] = row[2]
	}
	want := 5
	if slices.Contains(args, "mooncake") {
		want = 6 // a master and a client instead of the Store
	}
	if slices.Contains(args, "--decodes") {
		want++
	}
	if len(u.address) != want {
		t.Fatalf("the table shows %v, want %d processes that are ready", u.address, want)
	}
	u.url = "http://" + u.address["gateway"]
	u.client = clientOf(u.url)
	return u
}

// clientOf returns a client that keeps no connections: each request meets the server as it is.
func clientOf(url string) *client.Client {
	return &client.Client{Base: url, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// roles finds the processes of a run by the name of its directory, which is in the arguments of all roles
// and the working directory of other programs.
func (u *upRun) roles() map[string]int {
	found := map[string]int{}
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		args := strings.Split(string(b), "\x00")
		if !bytes.Contains(b, []byte(u.runtime)) {
			if dir, err := os.Readlink(filepath.Join(filepath.Dir(file), "cwd")); err == nil && strings.HasPrefix(dir, u.runtime) {
				name := strings.ReplaceAll(filepath.Base(args[0]), "_", "-")
				found[name], _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
			}
			continue
		}
		name := args[1]
		for i, a := range args[:len(args)-1] {
			if a == "--name" {
				name = args[i+1]
			}
		}
		found[name], _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
	}
	return found
}

// kill ends a role as nothing else does.
func (u *upRun) kill(t *testing.T, name string) {
	t.Helper()
	pid := u.roles()[name]
	if pid == 0 {
		t.Fatalf("%s does not run", name)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// gone waits until no role and nothing in the file system is left of a run.
func (u *upRun) gone(t *testing.T, patience time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		files, err := os.ReadDir(u.runtime)
		roles := u.roles()
		if len(roles) == 0 && (len(files) == 0 || errors.Is(err, os.ErrNotExist)) {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%v after its end up leaves processes %v and files %v", patience, roles, files)
			for _, pid := range roles {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
	}
}

// count reads a counter from a role's /metrics, summed over the lines that contain label ("" for all).
func (u *upRun) count(t *testing.T, role, name, label string) float64 {
	t.Helper()
	resp, err := u.client.HTTP.Get("http://" + u.address[role] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sum, found := 0.0, false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' || label != "" && !strings.Contains(rest, strconv.Quote(label)) {
			continue
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		t.Fatalf("%s shows no %s %s", role, name, label)
	}
	return sum
}

// ask asks about pictures on a chosen Encoder ("" for any).
func (u *upRun) ask(ctx context.Context, encoder string, files ...[]byte) (client.Answer, error) {
	return u.client.Ask(ctx, client.Question{Text: "Which colour?", Images: files, Encoder: encoder, MaxTokens: 12}, nil)
}

// mustAsk is ask, within a time that no answer of a tiny model needs.
func (u *upRun) mustAsk(t *testing.T, encoder string, files ...[]byte) client.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	a, err := u.ask(ctx, encoder, files...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// stored waits until Encoder name has given all that it encoded to the Store.
func (u *upRun) stored(t *testing.T, name string, n float64) {
	t.Helper()
	eventually(t, name+" has published", func() bool {
		return u.count(t, name, "afterimage_publish_objects_total", "stored") >= n
	})
}
