// SPDX-License-Identifier: Apache-2.0

//go:build vllm

package system

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"afterimage/internal/proxy"
	"afterimage/internal/testkit"
	"afterimage/internal/vllm"
)

// vllmStart bounds the start of a vLLM worker: one to two minutes on a quiet machine.
const vllmStart = 8 * time.Minute

// runPeer starts a program of 'make peers' and returns its base URL. It has a process group of its own, which ends with
// the test.
func runPeer(t *testing.T, args func(port string) []string) (url string, stop func()) {
	t.Helper()
	port := strconv.Itoa(testkit.FreePort(t))
	argv := args(port)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = "../.."
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	stop = func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("%s: the end of its log:\n%s", argv[0], log.Bytes()[max(0, log.Len()-2000):])
		}
	})
	return "http://127.0.0.1:" + port, stop
}

// awaitHealth waits until every URL answers /health with 200.
func awaitHealth(t *testing.T, urls ...string) {
	t.Helper()
	deadline := time.Now().Add(vllmStart)
	for _, url := range urls {
		for {
			resp, err := http.Get(url + "/health")
			if err == nil {
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					break
				}
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s did not get ready within %v", url, vllmStart)
			}
			time.Sleep(time.Second)
		}
	}
}

// volatile is what two answers to one request may differ in.
var volatile = regexp.MustCompile(`"(id|created)":("[^"]*"|[0-9]+)`)

// TestVLLMWorkers puts our gateway and vLLM's own proxy before the same real vLLM workers, which hand embeddings over as
// files (ECExampleConnector). Both must give the same answers, by byte but for ids, times and the cuts between pieces of a
// streamed text.
func TestVLLMWorkers(t *testing.T) {
	folder := t.TempDir()
	encoder, stopEncoder := runPeer(t, func(port string) []string { return []string{"scripts/peers_serve.sh", "encoder", port, folder} })
	pd, _ := runPeer(t, func(port string) []string { return []string{"scripts/peers_serve.sh", "prefill", port, folder} })
	awaitHealth(t, encoder, pd)
	theirs, _ := runPeer(t, func(port string) []string {
		return []string{".cache/peers/venv/bin/python", ".cache/peers/epd/disagg_epd_proxy.py", "--host", "127.0.0.1", "--port", port,
			"--encode-servers-urls", encoder, "--decode-servers-urls", pd}
	})
	awaitHealth(t, theirs)
	reg := prometheus.NewRegistry()
	f, err := vllm.New(vllm.Config{
		Static:   []vllm.Instance{{Role: vllm.Encode, URL: encoder, Replicas: 1}, {Role: vllm.PrefillDecode, URL: pd, Replicas: 1}},
		Registry: vllm.RegistryConfig{FailThreshold: 3}, Routing: vllm.Affinity, DecodeRetries: 1, Failovers: 2, ShortNames: true,
		KeepAlive: 5 * time.Second, ProbeTimeout: 2 * time.Second, WriteTimeout: 30 * time.Second,
		Body: proxy.BodyLimits{MaxBytes: 64 << 20}, MaxMedia: 64, Metrics: reg, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mux := http.NewServeMux()
	f.Routes(mux)
	ours := httptest.NewServer(mux)
	defer ours.Close()

	requests, err := filepath.Glob("../vllm/testdata/epd/client*/*.request.json")
	if err != nil || len(requests) < 15 {
		t.Fatalf("%d recorded requests, %v", len(requests), err)
	}
	for round := range 2 { // the second time, images go to the Encoder by name
		for _, file := range requests {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, wantStatus := askPeer(t, theirs, body)
			got, status := askPeer(t, ours.URL, body)
			name := fmt.Sprintf("%s, round %d", filepath.Base(file), round)
			switch {
			case status != wantStatus:
				t.Errorf("%s: status %d, from vLLM's proxy %d: %s", name, status, wantStatus, got)
			case status == http.StatusOK && got != want:
				t.Errorf("%s:\n got %s\nwant %s", name, got, want)
			case status != http.StatusOK && !strings.HasPrefix(got, `{"error":{"message":`):
				t.Errorf("%s: %s is no error in the API's shape", name, got)
			}
		}
	}
	if n := testutil.CollectAndCount(reg, "afterimage_vllm_media_total"); n != 2 {
		t.Errorf("%d series of media, want 2", n)
	}
	for _, s := range []struct {
		labels string
		least  float64
		most   float64
	}{{`sent="name"`, 10, 1e9}, {`stage="name"`, 0, 0}} {
		if v := seriesValue(t, reg, s.labels); v < s.least || v > s.most {
			t.Errorf("%s is %v, want %v to %v", s.labels, v, s.least, s.most)
		}
	}

	stopEncoder()
	image, _ := os.ReadFile("../vllm/testdata/epd/client_example/image1.request.json")
	if got, status := askPeer(t, ours.URL, image); status != http.StatusBadGateway || !strings.Contains(got, "the encode worker did not answer") {
		t.Errorf("without an Encoder: %d %s", status, got)
	}
	text, _ := os.ReadFile("../vllm/testdata/epd/client_example/text.request.json")
	if got, status := askPeer(t, ours.URL, text); status != http.StatusOK {
		t.Errorf("text without an Encoder: %d %s", status, got)
	}
}

// askPeer posts a chat and returns the answer without what is volatile.
func askPeer(t *testing.T, url string, body []byte) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	text := volatile.ReplaceAllString(string(b), `"$1":0`)
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		text = joined(t, text)
	}
	return text, resp.StatusCode
}

// joined is a stream with the pieces of its text put together: vLLM sends several tokens in one event if its front end is
// slower than its engine, by chance.
func joined(t *testing.T, stream string) string {
	t.Helper()
	var out []string
	var content strings.Builder
	for _, event := range strings.Split(strings.TrimSpace(stream), "\n\n") {
		var e struct {
			Choices []struct {
				Delta    map[string]any
				Logprobs any
				Finish   any `json:"finish_reason"`
			}
		}
		data, ok := strings.CutPrefix(event, "data: ")
		if !ok || data != "[DONE]" && json.Unmarshal([]byte(data), &e) != nil {
			t.Fatalf("%q is no event of a chat", event)
		}
		if len(e.Choices) == 1 {
			c := e.Choices[0]
			piece, _ := c.Delta["content"].(string)
			content.WriteString(piece)
			if c.Finish == nil && c.Logprobs == nil && len(c.Delta) == 1 {
				continue // but for a piece of text it says nothing
			}
			event = contentIn.ReplaceAllString(event, `"content":""`)
		}
		out = append(out, event)
	}
	return strings.Join(append(out, content.String()), "\n")
}

var contentIn = regexp.MustCompile(`"content":"([^"\\]|\\.)*"`)

// seriesValue returns the value of the series whose label is written as name="value".
func seriesValue(t *testing.T, reg *prometheus.Registry, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()) == label && m.GetCounter() != nil {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	t.Fatalf("no series with %s", label)
	return 0
}
