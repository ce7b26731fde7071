// SPDX-License-Identifier: Apache-2.0

package system

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/admit"
	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/embedding"
	"afterimage/internal/encoder"
	"afterimage/internal/engine"
	"afterimage/internal/engine/device"
	"afterimage/internal/media"
	"afterimage/internal/prefill"
	"afterimage/internal/publish"
	"afterimage/internal/resolve"
	shared "afterimage/internal/store"
	"afterimage/internal/store/ram"
	"afterimage/internal/transport"
)

// enc is an Encoder with the parts that tests look at.
type enc struct {
	*node
	publisher *publish.Publisher
	store     *ram.Client
	arena     *arena.Arena
	cache     *cache.Cache
}

func (f *fleet) startStore(t *testing.T, socket string, o options) {
	ln := must[net.Listener](t)(ram.Listen(socket))
	server := must[*ram.Server](t)(ram.NewServer(ram.Config{MaxBytes: arenaSize, Quota: o.quota, Logger: quiet}))
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

// encoderEngine is what each Encoder of a fleet runs.
func encoderEngine(t *testing.T, encodeTime time.Duration) *device.Encoder {
	return must[*device.Encoder](t)(device.NewEncoder(device.EncoderConfig{
		Model: "modelled", Seed: 1, EncodeTime: encodeTime, Cols: cols, DType: embedding.Float32,
	}))
}

// textEngine is what each P/D of a fleet runs.
func textEngine(t *testing.T, o options) *device.Text {
	return must[*device.Text](t)(device.NewText(device.TextConfig{
		Model: "modelled", Cols: cols, DType: embedding.Float32, Context: o.context, Slots: 4,
		AnswerLen: o.answerLen, PrefillTime: o.prefillTime, DecodeTime: o.decodeTime,
	}))
}

func (f *fleet) startEncoder(t *testing.T, name, socket string, o options) *enc {
	a := newArena(t, name, arenaSize)
	eng := encoderEngine(t, o.encodeTime)
	f.ns = embedding.Namespace{Model: "modelled", Encoder: eng.Spec().Fingerprint, DType: embedding.Float32, Protocol: embedding.A1}
	var naming *embedding.VLLMNaming
	if o.share != nil {
		naming = &vllmNaming
		f.ns = embedding.Namespace{Model: naming.Model, Encoder: embedding.VLLMDefaultEncoder, DType: *o.share, Protocol: embedding.V3}
	}
	store := must[*ram.Client](t)(ram.Dial(t.Context(), ram.ClientConfig{Path: socket, Arena: a}))
	guard := must[*shared.Guard](t)(shared.NewGuard(shared.GuardConfig{Store: store, Arena: a, Logger: quiet}))
	local := cache.New(cmp.Or(o.encoderCache, arenaSize/2))
	resolver := must[*resolve.Resolver](t)(resolve.New(resolve.Config{Cache: local, Store: guard, Protocol: f.ns.Protocol, KeepWrong: naming != nil, Logger: quiet}))
	publisher := must[*publish.Publisher](t)(publish.New(publish.Config{Store: guard, Protocol: f.ns.Protocol, Logger: quiet}))
	reg := prometheus.NewRegistry()
	sender := must[transport.Sender](t)(transport.NewSender(transport.SenderConfig{
		Engine: device.Name, Cols: cols, Metrics: transport.NewMetrics(reg), Logger: quiet,
	}))
	reg.MustRegister(resolver.Metrics(), publisher.Metrics())
	reg.MustRegister(guard.Collectors()...)
	e := must[*encoder.Encoder](t)(encoder.New(encoder.Config{
		Name: name, Version: "test", Engine: eng, Namespace: f.ns, VLLM: naming, Arena: a, Cache: local,
		Resolver: resolver, Publisher: publisher, Sender: sender, Limits: media.DefaultLimits(),
		MaxItems: 32, MaxBodyBytes: 64 << 20, MaxQueue: o.maxQueue, DeliverTimeout: 10 * time.Second,
		Registry: reg, Logger: quiet,
	}))
	mux := http.NewServeMux()
	e.Routes(mux)
	n := &enc{node: newNode(behind(admit.Fleet(mux, tokens(o.token))), reg), publisher: publisher, store: store, arena: a, cache: local}
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
	f.pool = newArena(t, "prefill", o.poolArena)
	if o.decodes > 0 {
		f.states = append(f.states, newArena(t, "states", cmp.Or(o.stateBytes, arenaSize)))
	}
	f.prefill = newNode(http.NewServeMux(), nil)
	f.bootPrefill(t, o)
	t.Cleanup(func() {
		f.prefill.Close()
		f.stopPrefill()
	})
}

// bootPrefill starts what a process of the role holds, behind the server of the node. Its memory is
// that of the fleet's pool, so that leaks of earlier processes show.
func (f *fleet) bootPrefill(t *testing.T, o options) {
	var text engine.Text = textEngine(t, o)
	if o.text != nil {
		text = o.text(text)
	}
	f.prefill.reg = prometheus.NewRegistry()
	var direct shared.Store
	if !o.p2p {
		client := must[*ram.Client](t)(ram.Dial(t.Context(), ram.ClientConfig{Path: f.socket, Arena: f.pool}))
		guard := must[*shared.Guard](t)(shared.NewGuard(shared.GuardConfig{Store: client, Arena: f.pool, Logger: quiet}))
		f.prefill.reg.MustRegister(guard.Collectors()...)
		direct = guard
		if o.direct != nil {
			direct = o.direct(guard, f.pool)
		}
	}
	kept := cache.NewWith(cache.Config{MaxBytes: o.residents, Arena: f.pool})
	residents := &prefill.Residents{Cache: kept}
	receiver := must[transport.Receiver](t)(transport.NewReceiver(transport.ReceiverConfig{
		Arena: f.pool, Evict: residents.Evict, Address: "127.0.0.1:0", Engine: device.Name, Cols: cols,
		Metrics: transport.NewMetrics(f.prefill.reg), Logger: quiet,
	}))
	over := f.newHandOff(t, o)
	p := must[*prefill.Prefill](t)(prefill.New(prefill.Config{
		HandOff: over,
		Name:    "prefill-0", Version: "test", Engine: text, Receiver: receiver, Protocol: embedding.A1,
		PoolBytes: o.poolBytes, MaxBodyBytes: 64 << 20, GrantTimeout: cmp.Or(o.grantWait, 5*time.Second), PrepareTTL: 30 * time.Second,
		ItemTimeout: o.itemWait, MaxWaiting: 64, WriteTimeout: 10 * time.Second, Registry: f.prefill.reg, Logger: quiet,
		Arena: f.pool, Residents: residents, Store: direct,
	}))
	mux := http.NewServeMux()
	p.Routes(mux)
	f.prefill.role.Store(behind(admit.Fleet(mux, tokens(o.token))))
	f.stopPrefill = func() {
		p.Close()
		receiver.Close()
		if over.Sender != nil {
			over.Sender.Close()
		}
		kept.Close()
		if direct != nil {
			direct.Close()
		}
	}
	f.residents = kept
	f.restartPrefill = func() {
		stop := f.stopPrefill
		f.bootPrefill(t, o)
		stop()
	}
}
