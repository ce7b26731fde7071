// SPDX-License-Identifier: Apache-2.0

//go:build !race

package system

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/testkit"
	"afterimage/internal/testkit/vllmconsumer"
	"afterimage/internal/vllm/consumer"
)

// relayFleet is a stub vLLM Encoder and a stub P/D with a consumer by vLLM's rules, for a gateway that is the real program,
// with a real Mooncake cluster.
type relayFleet struct {
	t        *testing.T
	cluster  *testkit.Mooncake
	memory   *arena.Arena
	store    *mooncake.Client
	consumer *vllmconsumer.Consumer
	pusher   *consumer.Client // the Encoder's
	encoder  *httptest.Server
	pd       *httptest.Server
	encodes  atomic.Int64
	stuck    atomic.Bool // writes are taken in and never acknowledged
}

var relayFleetNames = embedding.Namespace{Model: "m", Encoder: embedding.VLLMDefaultEncoder, DType: embedding.BFloat16, Protocol: embedding.V3}

const stubRows, stubCols = 64, 128

func newRelayFleet(t *testing.T) *relayFleet {
	f := &relayFleet{t: t, cluster: testkit.StartMooncake(t, testkit.MooncakeConfig{})}
	f.consumer = vllmconsumer.Start(t, vllmconsumer.Config{Shards: 2, Data: func(int, int) vllmconsumer.DataFault {
		return vllmconsumer.DataFault{NoStatus: f.stuck.Load()}
	}})
	f.memory = must[*arena.Arena](t)(arena.New(arena.Config{Name: "stub", Bytes: 4 << 20, Mapped: true}))
	f.store = must[*mooncake.Client](t)(mooncake.Open(t.Context(), mooncake.Config{Addr: f.cluster.Addr(), Logger: quiet}, f.memory))
	f.pusher = consumer.New(consumer.Config{FollowTimeout: 200 * time.Millisecond, Leave: time.Nanosecond, Logger: quiet})
	f.encoder, f.pd = httptest.NewServer(http.HandlerFunc(f.encode)), httptest.NewServer(http.HandlerFunc(f.decode))
	t.Cleanup(func() {
		f.encoder.Close()
		f.pd.Close()
		f.pusher.Close()
		f.store.Close()
		f.memory.Close()
	})
	return f
}

// push delivers the embedding of a name as a vLLM Encoder does.
func (f *relayFleet) push(transfer, name string) consumer.Outcome {
	return f.pusher.Deliver(context.Background(), f.consumer.Address(), []consumer.Item{{
		Transfer: transfer, Hash: name, Rows: stubRows, Cols: stubCols, DType: "bfloat16", Size: 2,
		Payload: func(context.Context) ([]byte, error) { return stubValues(name), nil },
	}})[0]
}

func stubValues(name string) []byte { return bytes.Repeat([]byte{name[0], 0x3f}, stubRows*stubCols) }

func (f *relayFleet) publish(name string) {
	if err := plantV3(f.t, f.store, f.memory, relayFleetNames.Key(embedding.Identifier(name)), stubRows, stubCols, embedding.BFloat16, stubValues(name)); err != nil {
		f.t.Error(err)
	}
}

// encode is the Encoder.
func (f *relayFleet) encode(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		return
	}
	f.encodes.Add(1)
	var body struct {
		Messages []struct {
			Content []struct {
				UUID string `json:"uuid"`
				URL  struct {
					URL string `json:"url"`
				} `json:"image_url"`
			} `json:"content"`
		} `json:"messages"`
		Params struct {
			Items []struct {
				Transfer string `json:"transfer_id"`
			} `json:"ec_items"`
		} `json:"ec_transfer_params"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		f.t.Error(err)
		return
	}
	part := body.Messages[0].Content[0]
	_, b64, _ := strings.Cut(part.URL.URL, ",")
	file, _ := base64.StdEncoding.DecodeString(b64)
	if img, err := png.Decode(bytes.NewReader(file)); err != nil || img.Bounds().Dx() != 224 {
		f.t.Errorf("the Encoder got %d bytes that are no picture of the test (%v)", len(file), err)
	}
	f.push(body.Params.Items[0].Transfer, part.UUID)
	f.publish(part.UUID)
	fmt.Fprintf(w, `{"ec_transfer_params":{%q:{"item_indices":[0],"metadata":{"image_grid_thw":[1,16,16]}}}}`, part.UUID)
}

// decode is the P/D, which needs what it was promised.
func (f *relayFleet) decode(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Params struct {
			Items []struct {
				Hash     string `json:"mm_hash"`
				Transfer string `json:"transfer_id"`
			} `json:"ec_items"`
		} `json:"ec_transfer_params"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	for _, it := range body.Params.Items {
		for _, s := range f.consumer.Shards {
			if !bytes.Equal(s.Ready(it.Transfer), stubValues(it.Hash)) {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
		}
	}
	_, _ = io.WriteString(w, `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}`)
}

// gateway starts the program with the state file at path, and returns its URL and its kill.
func (f *relayFleet) gateway(path string) (url string, kill func()) {
	f.t.Helper()
	at := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(f.t))
	cmd := command(f.t, "gateway", "--listen", at, "--encode-servers-urls", f.encoder.URL, "--decode-servers-urls", f.pd.URL,
		"--ec-consumer-zmq-addrs", f.consumer.Address(), "--relay", "--relay-model", "m", "--relay-memory-bytes", "16MiB",
		"--relay-state", path, "--mooncake-client", f.cluster.Addr())
	var log output
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	kill = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	f.t.Cleanup(kill)
	eventually(f.t, "the gateway is ready", func() bool {
		resp, err := http.Get("http://" + at + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return "http://" + at, kill
}

// ask posts a picture and returns the status; 0 if no answer came.
func (f *relayFleet) ask(url string, file []byte) int {
	body := must[[]byte](f.t)(json.Marshal(map[string]any{"model": "m", "messages": []any{user(img(file))}}))
	resp, err := http.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// TestKilledRelay: a gateway that is killed in the middle of a delivery blocks its image at the worker, as any producer
// of vLLM's does; the next gateway with its state sets it free, and knows what the first one knew.
func TestKilledRelay(t *testing.T) {
	f := newRelayFleet(t)
	state := filepath.Join(t.TempDir(), "relay.json")
	url, kill := f.gateway(state)
	first, second := picture(t, 224, 224, 1), picture(t, 224, 224, 2)
	if status := f.ask(url, first); status != http.StatusOK || f.encodes.Load() != 1 {
		t.Fatalf("the first picture: status %d, %d encodes", status, f.encodes.Load())
	}
	sum := sha256.Sum256([]byte(dataURL(second)))
	name := hex.EncodeToString(sum[:])
	f.publish(name)
	var encoded int64
	eventually(t, "the gateway brings what it knows", func() bool {
		encoded = f.encodes.Load()
		return f.ask(url, first) == http.StatusOK && f.encodes.Load() == encoded
	})
	eventually(t, "the gateway writes down what it knows", func() bool {
		text, err := os.ReadFile(state)
		return err == nil && strings.Contains(string(text), `"cols":128`)
	})

	f.stuck.Store(true)
	writes := f.consumer.Shards[0].Writes()
	gone := make(chan int, 1)
	go func() { gone <- f.ask(url, second) }()
	eventually(t, "it is in the middle of a delivery", func() bool { return f.consumer.Shards[0].Writes() > writes })
	kill()
	if status := <-gone; status != 0 {
		t.Errorf("a killed gateway answered %d", status)
	}
	f.stuck.Store(false)
	if o := f.push("blocked", name); o.Err == nil {
		t.Errorf("nothing blocks the image: %v", o)
	}

	url, _ = f.gateway(state)
	tries := 0
	eventually(t, "the next gateway sets the image free", func() bool {
		tries++
		return f.push(fmt.Sprintf("try-%d", tries), name).Err == nil
	})
	if status := f.ask(url, second); status != http.StatusOK || f.encodes.Load() != encoded {
		t.Errorf("the next gateway: status %d, %d encodes, want 200 and still %d", status, f.encodes.Load(), encoded)
	}
}
