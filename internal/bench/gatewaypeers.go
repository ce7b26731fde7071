// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"afterimage/internal/ports"
)

// contender is a gateway that is measured.
type contender struct {
	*child
	url string
}

// start runs a program that listens on a free port and waits until it answers /health with 200.
func (l launcher) start(ctx context.Context, name, binary string, args func(port string) []string) (*contender, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	c := &contender{url: "http://127.0.0.1:" + port}
	if c.child, err = startChild(name, binary, args(port), l.env, func(string) bool { return true }); err != nil {
		return nil, err
	}
	err = pollFor(ctx, startTimeout, name+" is ready", func() (bool, error) {
		select {
		case <-c.exited:
			return false, fmt.Errorf("bench: %s ended (%v); its last lines:\n%s", name, c.status, c.lastLines())
		default:
		}
		ok, err := answers(ctx, c.url+"/health")
		return ok && err == nil, ctx.Err()
	})
	if err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// freePort returns a port of loopback that nobody listens at, for a program that cannot choose one itself.
func freePort() (string, error) {
	port, err := ports.Take()
	return strconv.Itoa(port), err
}

// vllmStubs starts the stub vLLM workers in a process of their own.
func (l launcher) vllmStubs(ctx context.Context) (*child, stubAddresses, error) {
	return l.stubProcess(ctx, "stub-vllm")
}

// front starts a gateway before vLLM workers.
func (l launcher) front(ctx context.Context, at stubAddresses) (*contender, error) {
	return l.start(ctx, "afterimage gateway", l.binary, func(port string) []string {
		return []string{"gateway", "--host", "127.0.0.1", "--port", port, "--log-level", "error",
			"--encode-servers-urls", at.Encoder, "--decode-servers-urls", at.Prefill}
	})
}

// reverseProxy starts a proxy that does nothing else.
func (l launcher) reverseProxy(ctx context.Context, at stubAddresses) (*contender, error) {
	return l.start(ctx, "httputil.ReverseProxy", l.binary, func(port string) []string {
		return []string{"bench", "reverse-proxy", "--port", port, "--to", at.Prefill}
	})
}

// pythonProxy starts vLLM's own EPD proxy; why says why not.
func (l launcher) pythonProxy(ctx context.Context, dir string, at stubAddresses) (c *contender, why string, err error) {
	python, script := filepath.Join(dir, "venv/bin/python"), filepath.Join(dir, "epd/disagg_epd_proxy.py")
	if missing := firstMissing(python, script); missing != "" {
		return nil, "not installed: run 'make peers'", nil
	}
	c, err = l.start(ctx, "vLLM's EPD proxy", python, func(port string) []string {
		return []string{script, "--host", "127.0.0.1", "--port", port,
			"--encode-servers-urls", at.Encoder, "--decode-servers-urls", at.Prefill}
	})
	return c, "", err
}

// router starts vllm-router, which knows no Encoders; why says why not.
func (l launcher) router(ctx context.Context, dir string, at stubAddresses) (c *contender, why string, err error) {
	binary := filepath.Join(dir, "venv/bin/vllm-router")
	if missing := firstMissing(binary); missing != "" {
		return nil, "not installed: run 'make peers'", nil
	}
	metrics, err := freePort()
	if err != nil {
		return nil, "", err
	}
	c, err = l.start(ctx, "vllm-router", binary, func(port string) []string {
		return []string{"--worker-urls", at.Prefill, "--host", "127.0.0.1", "--port", port, "--policy", "round_robin",
			"--log-level", "error", "--prometheus-port", metrics}
	})
	return c, "", err
}

func firstMissing(paths ...string) string {
	for _, p := range paths {
		if _, err := os.Stat(p); err != nil {
			return p
		}
	}
	return ""
}

// copyBuffers lends buffers to a ReverseProxy.
type copyBuffers struct{ pool sync.Pool }

func (b *copyBuffers) Get() []byte  { return *b.pool.Get().(*[]byte) }
func (b *copyBuffers) Put(p []byte) { b.pool.Put(&p) }

// ServeReverseProxy passes everything on to a worker until ctx ends: the least that a proxy in Go does.
func ServeReverseProxy(ctx context.Context, listen, to string) error {
	target, err := url.Parse(to)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	p := &httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:  &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
		BufferPool: &copyBuffers{sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}},
	}
	srv := &http.Server{Handler: p}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-ctx.Done()
		_ = srv.Close()
	}()
	err = srv.Serve(ln)
	if ctx.Err() == nil {
		return err
	}
	<-done
	return nil
}

// held sets or lifts the hold of a stub, or asks how many calls wait.
func held(ctx context.Context, method, worker, query string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, worker+"/hold"+query, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	var n int
	return n, json.Unmarshal(b, &n)
}

// resetPeak makes the kernel forget the highest resident size of a process so far.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// statusMiB returns a size from /proc/PID/status.
func statusMiB(pid int, field string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("bench: memory: %w", err)
	}
	var kib float64
	_, rest, found := strings.Cut(string(b), "\n"+field+":")
	if _, err := fmt.Sscan(rest, &kib); !found || err != nil {
		return 0, fmt.Errorf("bench: /proc/%d/status has no %s", pid, field)
	}
	return kib / 1024, nil
}
