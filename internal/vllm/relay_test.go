// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	goimage "image"
	"image/color"
	"image/png"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/openai"
	"afterimage/internal/store"
	"afterimage/internal/store/mooncake"
	"afterimage/internal/testkit"
	"afterimage/internal/testkit/vllmconsumer"
	"afterimage/internal/vllm/consumer"
	"afterimage/internal/vllm/relay"
)

var relayNamespace = embedding.Namespace{Model: "m", Encoder: embedding.VLLMDefaultEncoder, DType: embedding.BFloat16, Protocol: embedding.V3}

// relayCols is the width of the stub fleet's embeddings; four patches of 14 x 14 are a row.
const relayCols = 128

// pdFleet is an Encoder and a prefill worker, as stubs, with a real Mooncake cluster and a consumer by vLLM's rules.
// What the worker answers is a digest of the embeddings that it was given.
type pdFleet struct {
	*front
	encoder, pd *stub
	consumer    *vllmconsumer.Consumer
	second      *vllmconsumer.Consumer // of data-parallel replica 1, if there is one
	memory      *arena.Arena
	store       *mooncake.Client
	relay       *relay.Relay
	clients     *consumer.Client // of the Encoder
	metrics     *prometheus.Registry
	names       atomic.Pointer[embedding.Namespace] // under which the Encoder stores
	missed      atomic.Int64                        // requests to the worker that lacked what they were promised
	fail        atomic.Int64                        // answers of the worker that are failures, whatever it was given
}

func newPDFleet(t *testing.T, with vllmconsumer.Config) *pdFleet {
	t.Helper()
	return newPDFleetKnowing(t, with, relayNamespace)
}

// newPDFleetKnowing is newPDFleet whose relay is configured with names; zero, it reads them off the Encoder.
func newPDFleetKnowing(t *testing.T, with vllmconsumer.Config, names embedding.Namespace) *pdFleet {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	// Faults of these tests are answers, so that no limit has to be waited for, however slow the machine.
	patient := consumer.Config{
		CallTimeout: time.Minute, WriteTimeout: time.Minute, FollowTimeout: time.Minute, Drain: 50 * time.Millisecond, Leave: time.Nanosecond, Logger: quiet,
	}
	m := testkit.StartMooncake(t, testkit.MooncakeConfig{})
	p := &pdFleet{consumer: vllmconsumer.Start(t, with), metrics: prometheus.NewRegistry(), clients: consumer.New(patient)}
	p.names.Store(&relayNamespace)
	var err error
	if p.memory, err = arena.New(arena.Config{Name: "relay-test", Bytes: 16 << 20, Mapped: true}); err != nil {
		t.Fatal(err)
	}
	if p.store, err = mooncake.Open(t.Context(), mooncake.Config{Addr: m.Addr(), Logger: quiet}, p.memory); err != nil {
		t.Fatal(err)
	}
	ours := consumer.New(patient)
	p.relay, err = relay.New(relay.Config{
		Store: p.store, Arena: p.memory, Namespace: names, Consumers: ours, State: filepath.Join(t.TempDir(), "relay.json"),
		StoreTimeout: time.Minute, Metrics: p.metrics, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.clients.Close()
		err := p.relay.Close()
		ours.Close()
		if err == nil {
			err = p.store.Close()
		}
		if err == nil {
			err = p.memory.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
	p.encoder, p.pd = newStub(t, p.encode), newStub(t, p.decode)
	p.front = newFront(t, func(c *Config) {
		c.Static = []Instance{
			{Role: Encode, URL: p.encoder.URL, Replicas: 1},
			{Role: PrefillDecode, URL: p.pd.URL, Replicas: 1, Addresses: []string{p.consumer.Address()}},
		}
		c.Relay, c.Metrics, c.DecodeRetries, c.ShortNames = p.relay, p.metrics, 0, false
		if names == (embedding.Namespace{}) {
			c.Keys = mooncake.NewListing(nil, m.AdminAddr())
		}
	})
	return p
}

// rowsFor returns what an image of a size becomes.
func rowsFor(w, h int) (grid relay.Grid, rows int) {
	grid = relay.Grid{1, h / 14, w / 14}
	return grid, grid[1] * grid[2] / 4
}

// valuesOf are the embedding that the stub Encoder makes of an image.
func valuesOf(name string, rows int) []byte {
	seed := sha256.Sum256([]byte(name))
	return bytes.Repeat([]byte{seed[0], 0x3f}, rows*relayCols)
}

// encode is the Encoder: it answers with grids, pushes to the consumer that it was told, and publishes.
func (p *pdFleet) encode(_ int, r received, w http.ResponseWriter) {
	var ps []struct {
		UUID  string `json:"uuid"`
		Image struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	_ = json.Unmarshal(r.chat.Messages[0].Content, &ps)

	entries := map[string]any{}
	indices := map[string][]int{}
	for i, part := range ps {
		_, b64, _ := strings.Cut(part.Image.URL, ",")
		file, _ := base64.StdEncoding.DecodeString(b64)
		img, err := png.Decode(bytes.NewReader(file))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		grid, rows := rowsFor(img.Bounds().Dx(), img.Bounds().Dy())
		if r.chat.Params.Consumer != "" {
			p.push(r, i, part.UUID, rows)
		}
		p.publish(part.UUID, rows, relayCols)
		indices[part.UUID] = append(indices[part.UUID], i)
		entries[part.UUID] = map[string]any{"item_indices": indices[part.UUID], "metadata": map[string]any{"image_grid_thw": grid}}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"id": "x", "ec_transfer_params": entries})
}

// push delivers the embedding of image i of a call to the consumer that it names.
func (p *pdFleet) push(r received, i int, name string, rows int) {
	p.clients.Deliver(context.Background(), r.chat.Params.Consumer, []consumer.Item{{
		Transfer: r.chat.Params.Items[i].Transfer, Hash: name, Rows: rows, Cols: relayCols, DType: "bfloat16", Size: 2,
		Payload: func(context.Context) ([]byte, error) { return valuesOf(name, rows), nil },
	}})
}

// publish stores an embedding as vLLM's Encoders do.
func (p *pdFleet) publish(name string, rows, cols int) {
	buf, err := p.memory.Reserve(embedding.HeaderBytesV3 + rows*cols*2)
	if err != nil {
		return
	}
	defer buf.Release()
	copy(buf.Bytes()[embedding.HeaderBytesV3:], valuesOf(name, rows))
	if embedding.V3.Seal(buf.Bytes(), "", embedding.Meta{Rows: rows, Cols: cols, DType: embedding.BFloat16}) == nil {
		buf.Commit()
		_ = p.store.Put(context.Background(), p.names.Load().Key(embedding.Identifier(name)), buf, store.PutOptions{})
	}
}

// decode is the prefill worker: it needs every embedding that it was promised, at every shard.
func (p *pdFleet) decode(_ int, r received, w http.ResponseWriter) {
	sum := sha256.New()
	at := p.consumer
	if r.header.Get("X-Data-Parallel-Rank") == "1" {
		at = p.second
	}
	for _, it := range r.chat.Params.Items {
		for _, s := range at.Shards {
			b := s.Ready(it.Transfer)
			if b == nil {
				p.missed.Add(1)
				says(http.StatusInternalServerError, `{"error":{"message":"no push","type":"InternalServerError","code":500}}`)(0, r, w)
				return
			}
			sum.Write(b)
		}
	}
	if p.fail.Add(-1) >= 0 {
		says(http.StatusInternalServerError, `{"error":{"message":"told to","type":"InternalServerError","code":500}}`)(0, r, w)
		return
	}
	fmt.Fprintf(w, `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"%x"},"finish_reason":"stop"}]}`, sum.Sum(nil))
}

// pngPart is a content part with a picture of its own.
func pngPart(t *testing.T, w, h int, shade uint8) string {
	t.Helper()
	img := goimage.NewGray(goimage.Rect(0, 0, w, h))
	img.Set(0, 0, color.Gray{Y: shade})
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + base64.StdEncoding.EncodeToString(b.Bytes()) + `"}}`
}

func contentName(part string) string {
	var p struct {
		Image struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	_ = json.Unmarshal([]byte(part), &p)
	return nameOf([]byte(p.Image.URL))
}

// TestRelay: what an Encoder has seen once never reaches one again, alone and beside images that do, and the answer is
// that of the Encoders' road.
func TestRelay(t *testing.T) {
	p := newPDFleet(t, vllmconsumer.Config{Shards: 2, PoolBytes: 8 << 20})
	a, b, other := pngPart(t, 224, 224, 1), pngPart(t, 336, 224, 2), pngPart(t, 224, 224, 3)
	ask := func(encoded int, parts ...string) string {
		t.Helper()
		before := 0
		for _, c := range p.encoder.calls() {
			before += len(c.chat.Params.Items)
		}
		got := p.post(t, "r", chat(parts...))
		works(t, got)
		after := 0
		for _, c := range p.encoder.calls() {
			after += len(c.chat.Params.Items)
		}
		if after-before != encoded {
			t.Errorf("%d images went to the Encoder, want %d", after-before, encoded)
		}
		return string(got.body)
	}
	first := ask(1, a, text)
	if again := ask(0, a, text); again != first {
		t.Errorf("the relay's answer is %s, the Encoder's %s", again, first)
	}
	both := ask(1, a, b, a)
	if again := ask(0, a, b, a); again != both {
		t.Errorf("the relay's answer is %s, the mixed one %s", again, both)
	}
	// Another gateway's Encoder has published a picture of a size that is known here.
	p.publish(contentName(other), 64, relayCols)
	p.encoder.Close()
	withoutEncoder := ask(0, other, b)
	want := sha256.New()
	for _, x := range []struct {
		part string
		rows int
	}{{other, 64}, {b, 96}} {
		for range 2 {
			want.Write(valuesOf(contentName(x.part), x.rows))
		}
	}
	if !strings.Contains(withoutEncoder, fmt.Sprintf("%x", want.Sum(nil))) {
		t.Errorf("without Encoders: %s", withoutEncoder)
	}
	if got := p.post(t, "r", chat(pngPart(t, 448, 448, 9))); got.status != http.StatusBadGateway {
		t.Errorf("a picture that only an Encoder can serve: %d %s", got.status, got.body)
	}
	err := testutil.GatherAndCompare(p.metrics, strings.NewReader(`
# HELP afterimage_vllm_sources_total Media parts of answered requests, by who brought them to the worker: relay from the Store, encoder.
# TYPE afterimage_vllm_sources_total counter
afterimage_vllm_sources_total{source="encoder"} 2
afterimage_vllm_sources_total{source="relay"} 8
`), "afterimage_vllm_sources_total")
	if err != nil {
		t.Error(err)
	}
}

// TestRelayFallsBack: what the relay cannot do, and what it did in vain, is the Encoders' as ever; the client sees none
// of it, though the worker's failures are not to be tried again.
func TestRelayFallsBack(t *testing.T) {
	var full atomic.Bool
	p := newPDFleet(t, vllmconsumer.Config{PoolBytes: 4 << 20, Control: func(_ int, op string) vllmconsumer.Fault {
		if full.Load() && op == "complete" && full.CompareAndSwap(true, false) {
			return vllmconsumer.HangUp
		}
		return vllmconsumer.Sound
	}})
	a, wrong := pngPart(t, 224, 224, 1), pngPart(t, 224, 224, 2)
	first := p.post(t, "r", chat(a))
	works(t, first)
	calls := func() int { return len(p.encoder.calls()) }
	ask := func(why string, encoded int, part string) {
		t.Helper()
		before := calls()
		got := p.post(t, "r", chat(part))
		works(t, got)
		if calls()-before != encoded {
			t.Errorf("%s: %d calls to the Encoder, want %d", why, calls()-before, encoded)
		}
		if part == a && !bytes.Equal(got.body, first.body) {
			t.Errorf("%s: another answer", why)
		}
	}
	ask("a hit", 0, a)
	p.fail.Store(1)
	ask("the worker fails with what was brought", 1, a)
	for deadline := time.Now().Add(20 * time.Second); !slices.Contains(p.consumer.Shards[0].Ops(), "cancel"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("what was brought in vain is still held: %v", p.consumer.Shards[0].Ops())
		}
	}
	full.Store(true)
	ask("the consumer hangs up at complete", 1, a)
	ask("the next one", 0, a)
	p.publish(contentName(wrong), 32, 2*relayCols)
	ask("an object of another shape", 1, wrong)
	if n := strings.Count(fmt.Sprint(p.consumer.Shards[0].Ops()), "reserve"); n != 8 {
		t.Errorf("%d reservations, want one for each delivery of both roads: 8", n)
	}
	p.fail.Store(9)
	if got := p.post(t, "r", chat(a)); got.status != http.StatusInternalServerError {
		t.Errorf("a worker that fails for good: %d %s", got.status, got.body)
	}
}

// TestRelayBodies: what the worker gets for images that were brought is what it got in the recorded run, in which each
// occurrence of an image had a transfer of its own.
func TestRelayBodies(t *testing.T) {
	for _, c := range []string{"c2", "e3"} {
		body, err := os.ReadFile(filepath.Join("testdata/relay", c+".request.json"))
		if err != nil {
			t.Fatal(err)
		}
		env, err := openai.ReadEnvelope(whole(body), 64, newNames().taps().tap)
		if err != nil {
			t.Fatal(err)
		}
		b := &relay.Batch{}
		media := make([]medium, len(env.Media))
		for i := range env.Media {
			name := env.Media[i].UUID
			if name == "" {
				name = nameOf(env.Media[i].URL)
			}
			media[i] = medium{uuid: name, content: name}
			b.Items = append(b.Items, relay.Brought{Hash: name, Grid: relay.Grid{1, 16, 16}, Transfer: "t"})
		}
		out := encoded{reports: make([]report, len(media))}
		out.reportBrought(b)
		got := bytes.Join(env.Rewrite(decodeEdit(env, media, out.reports, out.handed, true)), nil)
		want, err := os.ReadFile(filepath.Join("testdata/relay", c+".pd_request.json"))
		if err != nil {
			t.Fatal(err)
		}
		if a, b := plainBody(t, got), plainBody(t, want); a != b {
			t.Errorf("%s:\n got %s\nwant %s", c, a, b)
		}
	}
}

var anyTransfer = regexp.MustCompile(`"transfer_id":"[^"]*"`)

// plainBody is a body in one order of members, without transfer ids.
func plainBody(t *testing.T, body []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(v)
	return anyTransfer.ReplaceAllString(string(b), "")
}
