// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"afterimage/internal/admin"
	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/client"
	"afterimage/internal/embedding"
	"afterimage/internal/encoder"
	"afterimage/internal/engine"
	"afterimage/internal/engine/device"
	"afterimage/internal/gateway"
	"afterimage/internal/media"
	"afterimage/internal/prefill"
	"afterimage/internal/publish"
	"afterimage/internal/resolve"
	shared "afterimage/internal/store"
	"afterimage/internal/store/ram"
	"afterimage/internal/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Shapes of the modelled model: small, so that tests move kilobytes.
const (
	cols      = 16
	arenaSize = 4 << 20
)

// node is one role: its HTTP server, its metrics, and a switch that makes its server fail.
type node struct {
	*httptest.Server
	reg *prometheus.Registry
	// broken, when it returns true, takes over a request.
	broken atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

func newNode(mux *http.ServeMux, reg *prometheus.Registry) *node {
	n := &node{reg: reg}
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := n.broken.Load(); f != nil && (*f)(w, r) {
			return
		}
		mux.ServeHTTP(w, r)
	}))
	return n
}

// fail has f see every request first; f returns true when it has answered.
func (n *node) fail(f func(http.ResponseWriter, *http.Request) bool) { n.broken.Store(&f) }

// count returns the sum of a counter over the labels that contain label ("" for all).
func (n *node) count(t *testing.T, name, label string) float64 {
	t.Helper()
	all, err := n.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			if label == "" || strings.Contains(m.String(), fmt.Sprintf("%q", label)) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return sum
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// enc is an Encoder with the parts that tests look at.
type enc struct {
	*node
	publisher *publish.Publisher
	store     *ram.Client
	arena     *arena.Arena
	cache     *cache.Cache
}

// options change what a fleet is made of.
type options struct {
	encodeTime time.Duration
	context    int
	answerLen  int
	encoders   int
	poolBytes  int64
	itemWait   time.Duration
	maxQueue   int
	maxImages  int
	maxBody    int64
	// text, when set, stands between the P/D and its engine.
	text func(engine.Text) engine.Text
}

// fleet is all roles.
type fleet struct {
	storeReg *prometheus.Registry
	encoders []*enc
	prefill  *node
	pool     *arena.Arena
	gateway  *node
	client   *client.Client
	ns       embedding.Namespace
	// stopStore ends the Store; it may be called before the test ends.
	stopStore func()
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// newFleet starts a fleet and stops it, checking that nothing is left, when the test ends.
func newFleet(t *testing.T, change func(*options)) *fleet {
	t.Helper()
	o := options{context: 2048, answerLen: 12, encoders: 2, poolBytes: arenaSize, itemWait: 10 * time.Second, maxQueue: 64,
		maxImages: 16, maxBody: 64 << 20}
	if change != nil {
		change(&o)
	}
	f := &fleet{}
	socket := filepath.Join(t.TempDir(), "store.sock")
	f.startStore(t, socket)
	var encoders []string
	for i := range o.encoders {
		e := f.startEncoder(t, fmt.Sprintf("encoder-%d", i), socket, o)
		f.encoders = append(f.encoders, e)
		encoders = append(encoders, e.URL)
	}
	f.startPrefill(t, o)
	f.startGateway(t, encoders, o)
	return f
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newArena(t *testing.T, name string, n int64) *arena.Arena {
	a := must[*arena.Arena](t)(arena.New(arena.Config{Name: name, Bytes: n}))
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Errorf("arena %s: %v", name, err)
		}
	})
	return a
}

func (f *fleet) startStore(t *testing.T, socket string) {
	ln := must[net.Listener](t)(ram.Listen(socket))
	server := must[*ram.Server](t)(ram.NewServer(ram.Config{MaxBytes: arenaSize, Logger: quiet}))
	f.storeReg = prometheus.NewRegistry()
	f.storeReg.MustRegister(server.Collector())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(ctx, ln) }()
	f.stopStore = sync.OnceFunc(func() {
		cancel()
		<-done
		if err := server.Close(); err != nil {
			t.Errorf("store: %v", err)
		}
	})
	t.Cleanup(f.stopStore)
}

func (f *fleet) startEncoder(t *testing.T, name, socket string, o options) *enc {
	a := newArena(t, name, arenaSize)
	eng := must[*device.Encoder](t)(device.NewEncoder(device.EncoderConfig{
		Model: "modelled", Seed: 1, EncodeTime: o.encodeTime, Cols: cols, DType: embedding.Float32,
	}))
	f.ns = embedding.Namespace{Model: "modelled", Encoder: eng.Spec().Fingerprint, DType: embedding.Float32, Protocol: embedding.A1}
	store := must[*ram.Client](t)(ram.Dial(t.Context(), ram.ClientConfig{Path: socket, Arena: a}))
	guard := must[*shared.Guard](t)(shared.NewGuard(shared.GuardConfig{Store: store, ArenaBytes: arenaSize, Logger: quiet}))
	local := cache.New(arenaSize / 2)
	resolver := must[*resolve.Resolver](t)(resolve.New(resolve.Config{Cache: local, Store: guard, Protocol: f.ns.Protocol, Logger: quiet}))
	publisher := must[*publish.Publisher](t)(publish.New(publish.Config{Store: guard, Protocol: f.ns.Protocol, Logger: quiet}))
	reg := prometheus.NewRegistry()
	sender := must[transport.Sender](t)(transport.NewSender(transport.SenderConfig{
		Engine: device.Name, Cols: cols, Metrics: transport.NewMetrics(reg), Logger: quiet,
	}))
	reg.MustRegister(resolver.Metrics(), publisher.Metrics())
	reg.MustRegister(guard.Collectors()...)
	e := must[*encoder.Encoder](t)(encoder.New(encoder.Config{
		Name: name, Version: "test", Engine: eng, Namespace: f.ns, Arena: a, Cache: local,
		Resolver: resolver, Publisher: publisher, Sender: sender, Limits: media.DefaultLimits(),
		MaxItems: 32, MaxBodyBytes: 64 << 20, MaxQueue: o.maxQueue, DeliverTimeout: 10 * time.Second,
		Registry: reg, Logger: quiet,
	}))
	mux := http.NewServeMux()
	e.Routes(mux)
	n := &enc{node: newNode(mux, reg), publisher: publisher, store: store, arena: a, cache: local}
	t.Cleanup(func() {
		n.Close()
		if err := publisher.Close(context.Background()); err != nil {
			t.Errorf("publisher of %s: %v", name, err)
		}
		sender.Close()
		guard.Close()
		local.Close()
	})
	return n
}

func (f *fleet) startPrefill(t *testing.T, o options) {
	f.pool = newArena(t, "prefill", arenaSize)
	var text engine.Text = must[*device.Text](t)(device.NewText(device.TextConfig{
		Model: "modelled", Cols: cols, DType: embedding.Float32, Context: o.context, Slots: 4, AnswerLen: o.answerLen,
	}))
	if o.text != nil {
		text = o.text(text)
	}
	reg := prometheus.NewRegistry()
	receiver := must[transport.Receiver](t)(transport.NewReceiver(transport.ReceiverConfig{
		Arena: f.pool, Address: "127.0.0.1:0", Engine: device.Name, Cols: cols, Metrics: transport.NewMetrics(reg), Logger: quiet,
	}))
	p := prefill.New(prefill.Config{
		Name: "prefill-0", Version: "test", Engine: text, Receiver: receiver, Protocol: embedding.A1,
		PoolBytes: o.poolBytes, MaxBodyBytes: 64 << 20, GrantTimeout: 5 * time.Second, PrepareTTL: 30 * time.Second,
		ItemTimeout: o.itemWait, MaxWaiting: 64, WriteTimeout: 10 * time.Second, Registry: reg, Logger: quiet,
	})
	mux := http.NewServeMux()
	p.Routes(mux)
	f.prefill = newNode(mux, reg)
	t.Cleanup(func() {
		f.prefill.Close()
		p.Close()
		receiver.Close()
	})
}

func (f *fleet) startGateway(t *testing.T, encoders []string, o options) {
	reg := prometheus.NewRegistry()
	fetcher := media.NewFetcher(media.FetcherConfig{AllowPrivate: true})
	g := gateway.New(gateway.Config{
		Version: "test", Encoders: encoders, Prefills: []string{f.prefill.URL},
		MaxBodyBytes: o.maxBody, MaxImages: o.maxImages, Limits: media.DefaultLimits(), Fetcher: fetcher, Repairs: 2,
		ProbeEvery: 20 * time.Millisecond, ProbeTimeout: 5 * time.Second,
		PrepareTimeout: 10 * time.Second, EncodeTimeout: 30 * time.Second, WriteTimeout: 10 * time.Second,
		Registry: reg, Logger: quiet,
	})
	ctx, cancel := context.WithCancel(context.Background())
	g.Start(ctx)
	mux := admin.Mux(admin.Role{Name: "gateway", Version: "test", Registry: reg, Ready: g.Ready})
	g.Routes(mux)
	f.gateway = newNode(mux, reg)
	f.client = &client.Client{Base: f.gateway.URL, HTTP: f.gateway.Client()}
	t.Cleanup(func() {
		f.gateway.Close()
		cancel()
		g.Close()
		fetcher.Close()
	})
	eventually(t, "the gateway is ready", func() bool { return g.Ready() == nil })
}

// eventually waits for a condition that other goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// published waits until Encoder i has given all that it encoded to the Store.
func (f *fleet) published(t *testing.T, i int) {
	t.Helper()
	if err := f.encoders[i].publisher.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// encodes is how often any engine ran.
func (f *fleet) encodes(t *testing.T) float64 {
	t.Helper()
	sum := 0.0
	for _, e := range f.encoders {
		sum += e.count(t, "afterimage_encoder_encodes_total", "")
	}
	return sum
}
