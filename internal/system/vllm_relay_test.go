// SPDX-License-Identifier: Apache-2.0

//go:build vllm && !race

package system

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/proxy"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/testkit"
	"afterimage/internal/vllm"
	"afterimage/internal/vllm/consumer"
	"afterimage/internal/vllm/relay"
)

// What a picture of 224 x 224 is to the peers' model.
const relayRows, relayCols = 64, 128

// relayRig is a vLLM Encoder and a vLLM P/D with the Mooncake connector, both real, and before them vLLM's own proxy and
// our gateway with a relay.
type relayRig struct {
	cluster      *testkit.Mooncake
	theirs, ours string
	encoder      string
	stopEncoder  func()
	encodes      atomic.Int64 // calls of our gateway that reached the Encoder
	control      string
	store        *mooncake.Client
	memory       *arena.Arena
	ns           embedding.Namespace
	reg          *prometheus.Registry
}

func startRelayRig(t *testing.T) *relayRig {
	t.Helper()
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	control := fmt.Sprint(testkit.FreePort(t))
	r := &relayRig{cluster: m, control: "tcp://127.0.0.1:" + control, reg: prometheus.NewRegistry()}
	var pd string
	r.encoder, r.stopEncoder = runPeer(t, func(port string) []string {
		return []string{"scripts/peers_serve.sh", "encoder-mooncake", port, m.MasterAddr()}
	})
	pd, _ = runPeer(t, func(port string) []string {
		return []string{"scripts/peers_serve.sh", "prefill-mooncake", port, control}
	})
	awaitHealth(t, r.encoder, pd)
	r.theirs, _ = runPeer(t, func(port string) []string {
		return []string{".cache/peers/venv/bin/python", ".cache/peers/epd/disagg_epd_proxy.py", "--host", "127.0.0.1", "--port", port,
			"--encode-servers-urls", r.encoder, "--decode-servers-urls", pd, "--ec-consumer-zmq-addrs", r.control}
	})
	awaitHealth(t, r.theirs)
	r.memory = must[*arena.Arena](t)(arena.New(arena.Config{Name: "relay", Bytes: 64 << 20}))
	r.store = must[*mooncake.Client](t)(mooncake.Open(t.Context(), mooncake.Config{Addr: m.Addr(), Logger: quiet}, r.memory))
	model := must[string](t)(filepath.Abs("../../.cache/peers/models/tiny-vl"))
	r.ns = embedding.Namespace{Model: model, Encoder: embedding.VLLMDefaultEncoder, DType: embedding.BFloat16, Protocol: embedding.V3}
	consumers := consumer.New(consumer.Config{Logger: quiet})
	state := filepath.Join(t.TempDir(), "relay.json")
	bringer := must[*relay.Relay](t)(relay.New(relay.Config{ // which is told no names
		Store: r.store, Arena: r.memory, Consumers: consumers, State: state, Metrics: r.reg, Logger: quiet,
	}))
	t.Cleanup(func() {
		err := bringer.Close()
		consumers.Close()
		if err := errors.Join(err, r.store.Close(), r.memory.Close()); err != nil {
			t.Error(err)
		}
	})
	r.front(t, pd, bringer)
	within(t, 2*time.Minute, "the gateway reads off the Encoder under which names it stores", func() bool {
		text, _ := os.ReadFile(state)
		return bytes.Contains(text, []byte(r.ns.String()))
	})
	return r
}

// front serves our gateway, which reaches the Encoder through a counter.
func (r *relayRig) front(t *testing.T, pd string, bringer *relay.Relay) {
	t.Helper()
	to := must[*url.URL](t)(url.Parse(r.encoder))
	through := httputil.NewSingleHostReverseProxy(to)
	counter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPost {
			r.encodes.Add(1)
		}
		through.ServeHTTP(w, q)
	}))
	t.Cleanup(counter.Close)
	f := must[*vllm.Front](t)(vllm.New(vllm.Config{
		Static: []vllm.Instance{
			{Role: vllm.Encode, URL: counter.URL, Replicas: 1},
			{Role: vllm.PrefillDecode, URL: pd, Replicas: 1, Addresses: []string{r.control}},
		},
		Registry: vllm.RegistryConfig{FailThreshold: 3}, Routing: vllm.Affinity, DecodeRetries: 1, Failovers: 2, Relay: bringer, Keys: mooncake.NewListing(nil, r.cluster.AdminAddr()),
		KeepAlive: 5 * time.Second, ProbeTimeout: 2 * time.Second, WriteTimeout: 30 * time.Second,
		Body: proxy.BodyLimits{MaxBytes: 64 << 20}, MaxMedia: 64, Metrics: r.reg, Logger: quiet,
	}))
	ctx, stop := context.WithCancel(context.Background())
	f.Start(ctx)
	t.Cleanup(func() {
		stop()
		f.Close()
	})
	mux := http.NewServeMux()
	f.Routes(mux)
	ours := httptest.NewServer(mux)
	t.Cleanup(ours.Close)
	r.ours = ours.URL
}

// named is an image part with a client's name, "" for none.
func named(file []byte, name string) map[string]any {
	part := map[string]any{"type": "image_url", "image_url": map[string]any{"url": dataURL(file)}}
	if name != "" {
		part["uuid"] = name
	}
	return part
}

// contentName is what proxies call a picture.
func contentName(file []byte) string {
	sum := sha256.Sum256([]byte(dataURL(file)))
	return hex.EncodeToString(sum[:])
}

func relayChat(t *testing.T, tokens int, parts ...any) []byte {
	t.Helper()
	return must[[]byte](t)(json.Marshal(map[string]any{
		"model": "tiny-vl", "max_tokens": tokens, "temperature": 0, "seed": 0, "logprobs": true, "top_logprobs": 5,
		"messages": []any{user(append([]any{text("What is this?")}, parts...)...)},
	}))
}

// ask posts a chat and returns the answer without what differs between equal requests.
func (r *relayRig) ask(t *testing.T, at string, body []byte) string {
	t.Helper()
	got, status := askPeer(t, at, body)
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s", at, status, got)
	}
	return ecParams.ReplaceAllString(got, "")
}

// ecParams are the transfers in an answer.
var ecParams = regexp.MustCompile(`"ec_transfer_params":(null|\{.*?\}\}?)`)

var freshNames atomic.Int64

// fresh returns a name that nobody has used.
func fresh() string { return fmt.Sprintf("relay-test-%d", freshNames.Add(1)) }

// encodeOnly has the Encoder encode a picture under its content's name and publish it; no P/D hears of it.
func (r *relayRig) encodeOnly(t *testing.T, file []byte) {
	t.Helper()
	body := must[[]byte](t)(json.Marshal(map[string]any{"model": "tiny-vl", "messages": []any{user(named(file, contentName(file)))}}))
	r.ask(t, r.encoder, body)
	key := r.ns.Key(embedding.Identifier(contentName(file)))
	eventually(t, "the Encoder publishes", func() bool {
		st, err := r.store.Exists(t.Context(), []embedding.Key{key})
		return err == nil && st[0].Present
	})
}

// TestVLLMRelay: with all Encoders stopped, our gateway answers from the Store what vLLM's proxy, Encoder and P/D
// answered, logprobs included; and it takes less time for a hit than they do.
func TestVLLMRelay(t *testing.T) {
	r := startRelayRig(t)
	first := picture(t, 224, 224, 40)
	wide := picture(t, 336, 224, 41)
	for _, file := range [][]byte{first, wide} { // what teaches the gateway
		r.ask(t, r.ours, relayChat(t, 1, named(file, "")))
	}
	r.examined(t)
	taught := r.encodes.Load()
	var files [][]byte
	for n := range 4 {
		w := 224
		if n == 3 {
			w = 336
		}
		files = append(files, picture(t, w, 224, uint8(50+n)))
		r.encodeOnly(t, files[n])
	}
	cases := [][]int{{0}, {3}, {1, 2}, {1, 1, 3}, {0, 1, 2, 3}}
	normal := make([]string, len(cases))
	for n, c := range cases { // under names of their own, so that these transfers are not those of the relay
		var parts []any
		names := map[int]string{}
		for _, i := range c {
			if names[i] == "" {
				names[i] = fresh()
			}
			parts = append(parts, named(files[i], names[i]))
		}
		normal[n] = r.ask(t, r.theirs, relayChat(t, 8, parts...))
	}
	r.compareTTFT(t, files[0])
	r.stopEncoder()
	for n, c := range cases {
		var parts []any
		for _, i := range c {
			parts = append(parts, named(files[i], ""))
		}
		if got := r.ask(t, r.ours, relayChat(t, 8, parts...)); got != normal[n] {
			t.Errorf("pictures %v without Encoders:\n got %s\nwant %s", c, got, normal[n])
		}
	}
	if n := r.encodes.Load(); n != taught {
		t.Errorf("%d calls reached the Encoder after the gateway was taught, want none", n-taught)
	}
	if v := seriesValue(t, r.reg, `result="written"`); v < 3 {
		t.Errorf("%v pictures were written, want each of the new ones", v)
	}
	r.poolIsWhole(t)
	t.Logf("%d requests with all Encoders stopped: answers and logprobs equal to vLLM's own road; %d calls to the Encoder. "+
		"vLLM's model runner has the plugin of scripts/peers_plugin.py; connector, control channel and pool are as vLLM made them", len(cases), r.encodes.Load()-taught)
}

// compareTTFT prints the time of hits that neither Encoder nor P/D has seen, by both roads in turn: one token, so that the
// answer is the first of it. What deliveries may take, 'afterimage bench relay --check' decides.
func (r *relayRig) compareTTFT(t *testing.T, file []byte) {
	t.Helper()
	values := readV3(t, r.store, r.ns.Key(embedding.Identifier(contentName(file))), relayRows, relayCols, r.ns.DType)
	plant := func(name string) {
		if err := plantV3(t, r.store, r.memory, r.ns.Key(embedding.Identifier(name)), relayRows, relayCols, r.ns.DType, values); err != nil {
			t.Fatal(err)
		}
	}
	timed := func(at string, body []byte) float64 {
		start := time.Now()
		r.ask(t, at, body)
		return float64(time.Since(start)) / float64(time.Millisecond)
	}
	var theirs, ours []float64
	for n := range 12 {
		unseen := picture(t, 224, 224, uint8(100+n))
		plant(contentName(unseen))
		name := fresh()
		plant(name)
		x := timed(r.theirs, relayChat(t, 1, named(file, name)))
		y := timed(r.ours, relayChat(t, 1, named(unseen, "")))
		if n >= 2 { // both are warm then
			theirs, ours = append(theirs, x), append(ours, y)
		}
	}
	slices.Sort(theirs)
	slices.Sort(ours)
	a, b := ours[len(ours)/2], theirs[len(theirs)/2]
	t.Logf("TTFT of a Store hit, p50 of %d: relay %.1f ms, vLLM's proxy and Encoder %.1f ms, %.2fx", len(ours), a, b, a/b)
}

// poolIsWhole checks after deliveries that failed half way that the P/D's memory can be had as a whole: each of these
// takes more than half of it.
func (r *relayRig) poolIsWhole(t *testing.T) {
	t.Helper()
	c := consumer.New(consumer.Config{Logger: quiet})
	defer c.Close()
	gone := errors.New("gone")
	for n := range 4 {
		name := fresh()
		o := c.Deliver(t.Context(), r.control, []consumer.Item{{
			Transfer: strings.Repeat("0", 32-len(name)) + name, Hash: name, Rows: 40 << 20 / 256, Cols: 128, DType: "bfloat16", Size: 2,
			Payload: func(context.Context) ([]byte, error) {
				if n < 3 {
					return nil, gone
				}
				return bytes.Repeat([]byte{1}, 40<<20), nil
			},
		}})[0]
		if n < 3 && !errors.Is(o.Err, gone) || n == 3 && o.Err != nil {
			t.Errorf("delivery %d of 40 MiB into a pool of 64: %v", n, o)
		}
	}
}
