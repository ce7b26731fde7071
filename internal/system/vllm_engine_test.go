// SPDX-License-Identifier: Apache-2.0

//go:build vllm && !race

package system

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/testkit"
)

// vllmEncoder is a vLLM server as an Encoder, with the plugin of scripts/peers_plugin.py.
type vllmEncoder struct {
	url string
	log *os.File
}

// startVLLMEncoder takes about a minute.
func startVLLMEncoder(t *testing.T, master string) *vllmEncoder {
	t.Helper()
	root := must[string](t)(filepath.Abs("../.."))
	if _, err := os.Stat(filepath.Join(root, ".cache", "peers", "venv", "installed.txt")); err != nil {
		t.Fatalf("no vLLM: run `make peers` (%v)", err)
	}
	port := fmt.Sprint(testkit.FreePort(t))
	e := &vllmEncoder{url: "http://127.0.0.1:" + port, log: must[*os.File](t)(os.Create(filepath.Join(t.TempDir(), "vllm.log")))}
	cmd := exec.Command(filepath.Join(root, "scripts", "peers_serve.sh"), "encoder-mooncake", port, master)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = e.log, e.log, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
		}
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its engine is a process of its own
		<-ended
		if t.Failed() {
			t.Logf("vLLM said:\n%s", e.said(t))
		}
		e.log.Close()
	})
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		select {
		case <-ended:
			t.Fatal("vLLM ended before it was up")
		default:
		}
		if resp, err := http.Get(e.url + "/health"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return e
			}
		}
		if time.Now().After(end) {
			t.Fatal("vLLM was not up in 5 minutes")
		}
	}
}

func (e *vllmEncoder) said(t *testing.T) string {
	t.Helper()
	return string(must[[]byte](t)(os.ReadFile(e.log.Name())))
}

// encode has vLLM encode a picture and returns its identifier and rows.
func (e *vllmEncoder) encode(t *testing.T, file []byte) (id embedding.Identifier, rows int) {
	t.Helper()
	type part struct {
		Type     string            `json:"type"`
		ImageURL map[string]string `json:"image_url"`
	}
	body := must[[]byte](t)(json.Marshal(map[string]any{"model": "tiny-vl", "messages": []any{
		map[string]any{"role": "user", "content": []part{{"image_url", map[string]string{"url": dataURL(file)}}}},
	}}))
	resp, err := http.Post(e.url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := must[[]byte](t)(io.ReadAll(resp.Body))
	var answer struct {
		Items map[embedding.Identifier]struct {
			Metadata struct {
				Grid []int `json:"image_grid_thw"`
			}
		} `json:"ec_transfer_params"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || len(answer.Items) != 1 {
		t.Fatalf("vLLM's Encoder: status %d, %s", resp.StatusCode, text)
	}
	for id, item := range answer.Items {
		g := item.Metadata.Grid
		return id, g[0] * g[1] * g[2] / 4 // its model merges 2 x 2 patches
	}
	return "", 0
}

// TestVLLMEngine: a real vLLM Encoder publishes what we read, and takes what we publish instead of encoding.
func TestVLLMEngine(t *testing.T) {
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	e := startVLLMEncoder(t, m.MasterAddr())
	a := must[*arena.Arena](t)(arena.New(arena.Config{Name: "live", Bytes: 16 << 20}))
	t.Cleanup(func() { a.Close() })
	c := must[*mooncake.Client](t)(mooncake.Open(t.Context(), mooncake.Config{Addr: m.Addr(), Logger: quiet}, a))
	t.Cleanup(func() { c.Close() })
	path := must[string](t)(filepath.Abs("../../.cache/peers/models/tiny-vl"))
	ns := embedding.Namespace{Model: path, Encoder: embedding.VLLMDefaultEncoder, DType: embedding.BFloat16, Protocol: embedding.V3}
	const vllmCols = 128

	theirs, ours := picture(t, 224, 224, 1), picture(t, 224, 224, 2)
	id, rows := e.encode(t, theirs)
	if want := (embedding.VLLMNaming{Model: path}).Identifier(theirs, true); id != want {
		t.Errorf("vLLM's identifier is %s, ours %s", id, want)
	}
	var there []byte
	eventually(t, "vLLM publishes", func() bool {
		st, err := c.Exists(t.Context(), []embedding.Key{ns.Key(id)})
		return err == nil && st[0].Present
	})
	there = readV3(t, c, ns.Key(id), rows, vllmCols, ns.DType)
	if err := embedding.CheckFinite(there, ns.DType); err != nil || len(there) != rows*vllmCols*2 {
		t.Errorf("vLLM's object: %d bytes, %v", len(there), err)
	}

	key := ns.Key(embedding.VLLMNaming{Model: path}.Identifier(ours, true))
	if err := plantV3(t, c, a, key, rows, vllmCols, ns.DType, there); err != nil {
		t.Fatal(err)
	}
	e.encode(t, ours)
	said := e.said(t)
	if strings.Count(said, "peers: encode 1 of 1") != 1 || strings.Count(said, "peers: encode 0 of 1") != 1 {
		t.Error("vLLM is to encode the picture that nobody had, and only that")
	}
	t.Logf("a vLLM Encoder's %d x %d bfloat16 were read under our name of the picture; ours spared it an encode", rows, vllmCols)
}
