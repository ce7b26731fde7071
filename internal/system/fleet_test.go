// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"afterimage/internal/admin"
	"afterimage/internal/admit"
	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/client"
	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/gateway"
	"afterimage/internal/media"
	shared "afterimage/internal/store"
)

// atEnd is done once all tests have run.
var atEnd []func()

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		for _, f := range atEnd {
			f()
		}
		os.Exit(status)
	}))
}

// Shapes of the modelled model: small, so that tests move kilobytes.
const (
	cols      = 16
	arenaSize = 4 << 20
)

// options change what a fleet is made of.
type options struct {
	encodeTime   time.Duration
	prefillTime  time.Duration // per token of the prompt
	decodeTime   time.Duration // per token of the answer
	context      int
	answerLen    int
	encoders     int
	decodes      int   // decode workers; with any, the P/D hands prompts over
	stateBytes   int64 // memory for states, at the P/D and at each decode worker; 0 is arenaSize
	poolArena    int64 // the P/D's memory as it is
	poolBytes    int64 // and as its configuration says
	itemWait     time.Duration
	grantWait    time.Duration // 0 is 5 s
	residents    int64         // bytes that the P/D keeps
	encoderCache int64         // bytes that an Encoder keeps; less than 0 is none
	p2p          bool          // the P/D leaves the Store to the Encoders
	// direct, when set, stands between the P/D and the Store.
	direct    func(shared.Store, *arena.Arena) shared.Store
	maxQueue  int
	quota     func(tenant string) int64 // of the Store
	maxImages int
	maxBody   int64
	// share, when set, has Encoders share v3 objects of this dtype with vLLM.
	share *embedding.DType
	// text, when set, stands between the P/D and its engine.
	text func(engine.Text) engine.Text
	// gateway changes the gateway's configuration.
	gateway func(*gateway.Config)
	// door, when set, stands before the gateway, whose fleet admin may look at.
	door  *admit.Config
	admin string
	// token is what workers ask for; "" is none.
	token string
	// denyPrivate has the gateway fetch from public addresses only, as it does by default.
	denyPrivate bool
}

// fleet is all roles.
type fleet struct {
	storeReg  *prometheus.Registry
	encoders  []*enc
	prefill   *node
	pool      *arena.Arena
	decodes   []*node
	states    []*arena.Arena // of the P/D, then of the decode workers
	residents *cache.Cache   // of the P/D
	socket    string         // of the Store
	gateway   *node
	client    *client.Client
	admin     map[string]string // header of requests that look at the fleet
	ready     func() error      // the gateway's own word
	ns        embedding.Namespace
	// stopStore ends the Store; it may be called before the test ends.
	stopStore func()
	// restartPrefill ends the P/D's process and starts another at the same address.
	stopPrefill, restartPrefill func()
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// newFleet starts a fleet and stops it, checking that nothing is left, when the test ends.
func newFleet(t *testing.T, change func(*options)) *fleet {
	t.Helper()
	o := options{context: 2048, answerLen: 12, encoders: 2, poolArena: arenaSize, poolBytes: arenaSize, itemWait: 10 * time.Second, residents: arenaSize / 2, maxQueue: 64,
		maxImages: 16, maxBody: 64 << 20}
	if change != nil {
		change(&o)
	}
	socket := filepath.Join(t.TempDir(), "store.sock")
	f := &fleet{socket: socket}
	f.startStore(t, socket, o)
	var encoders []string
	for i := range o.encoders {
		e := f.startEncoder(t, fmt.Sprintf("encoder-%d", i), socket, o)
		f.encoders = append(f.encoders, e)
		encoders = append(encoders, e.URL)
	}
	f.startPrefill(t, o)
	f.startDecodes(t, o)
	f.startGateway(t, encoders, o)
	return f
}

func (f *fleet) startGateway(t *testing.T, encoders []string, o options) {
	reg := prometheus.NewRegistry()
	fetcher := media.NewFetcher(media.FetcherConfig{AllowPrivate: !o.denyPrivate})
	cfg := gateway.Config{
		Version: "test", Encoders: encoders, Prefills: []string{f.prefill.URL},
		MaxBodyBytes: o.maxBody, MaxImages: o.maxImages, Limits: media.DefaultLimits(), Fetcher: fetcher, Repairs: 2,
		ProbeEvery: 20 * time.Millisecond, ProbeTimeout: 5 * time.Second,
		PrepareTimeout: 10 * time.Second, EncodeTimeout: 30 * time.Second, WriteTimeout: 10 * time.Second,
		Registry: reg, Logger: quiet,
	}
	for _, d := range f.decodes {
		cfg.Decodes = append(cfg.Decodes, d.URL)
	}
	if o.gateway != nil {
		o.gateway(&cfg)
	}
	cfg.Token = o.token
	g := gateway.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	g.Start(ctx)
	mux := admin.Mux(admin.Role{Name: "gateway", Version: "test", Registry: reg, Ready: g.Ready})
	g.Routes(mux)
	if o.door != nil {
		mux = behind(admit.New(*o.door).Wrap(mux))
		f.admin = map[string]string{"Authorization": "Bearer " + o.admin}
	}
	f.gateway = newNode(mux, reg)
	f.client = &client.Client{Base: f.gateway.URL, HTTP: f.gateway.Client()}
	f.ready = g.Ready
	t.Cleanup(func() {
		f.gateway.Close()
		cancel()
		g.Close()
		fetcher.Close()
	})
	eventually(t, "the gateway is ready", func() bool { return f.ready() == nil && f.allUp(t) })
}

// secondGateway starts another gateway before the same workers. The result shares all but that with f.
func (f *fleet) secondGateway(t *testing.T, change func(*options)) *fleet {
	t.Helper()
	o := options{maxImages: 16, maxBody: 64 << 20}
	if change != nil {
		change(&o)
	}
	g := *f
	var encoders []string
	for _, e := range f.encoders {
		encoders = append(encoders, e.URL)
	}
	g.startGateway(t, encoders, o)
	return &g
}

// allUp says whether the gateway has every worker in service.
func (f *fleet) allUp(t *testing.T) bool {
	for _, w := range f.seen(t) {
		if !w.Up {
			return false
		}
	}
	return true
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

// free says whether the P/D's memory for embeddings is all back, but for residents that no request uses, and all
// memory for states.
func (f *fleet) free() bool {
	f.residents.Evict(math.MaxInt64)
	for _, a := range append([]*arena.Arena{f.pool}, f.states...) {
		if s := a.Stats(); s.Reserved != 0 || s.Committed != 0 {
			return false
		}
	}
	return true
}
