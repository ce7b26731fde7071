// SPDX-License-Identifier: Apache-2.0

package encoder

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/arena"
	"afterimage/internal/cache"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/media"
	"afterimage/internal/publish"
	"afterimage/internal/resolve"
	"afterimage/internal/transport"
)

// Config wires an Encoder. The Encoder owns none of its parts: whoever made them closes them, after
// Close.
type Config struct {
	Name    string // unique in the fleet, e.g. "encoder-0"
	Version string
	Model   string // name to serve under; "" takes the engine's
	Engine  engine.Encoder
	// Namespace names objects. With Protocol V3 its fields are vLLM's, and VLLM is required.
	Namespace embedding.Namespace
	VLLM      *embedding.VLLMNaming
	Arena     *arena.Arena
	Cache     *cache.Cache
	Resolver  *resolve.Resolver
	Publisher *publish.Publisher
	Sender    transport.Sender
	Limits    media.Limits
	// MaxItems bounds the images of one call.
	MaxItems int
	// MaxBodyBytes bounds the image bytes of one call.
	MaxBodyBytes int64
	// MaxQueue bounds the images that wait for the engine; more are refused with 429.
	MaxQueue int
	// DeliverTimeout bounds one delivery, from the first try to the receiver's confirmation.
	DeliverTimeout time.Duration
	Registry       prometheus.Registerer
	Logger         *slog.Logger
}

// Encoder serves encode calls. All methods may be called from any goroutine.
type Encoder struct {
	cfg     Config
	spec    engine.EncoderSpec
	boot    string
	metrics *metrics
	flights resolve.Flight[*arena.Buf]
	board   board
	leaving atomic.Bool
	ready   chan struct{} // tokens for pictures that are decoded, the one in the engine included
	engine  chan struct{} // one token: the engine runs one picture at a time
	waiting atomic.Int64  // images before the engine
	running atomic.Int64  // images in it
	call    call          // into it
}

// maxReady is how many pictures are held decoded: the one in the engine, and the next, so that the
// engine never waits for a decoder. More would only take memory: 150 MB for one of 50 million pixels.
const maxReady = 2

// New checks cfg and returns an Encoder that is ready to serve.
func New(cfg Config) (*Encoder, error) {
	if err := cfg.Namespace.Validate(); err != nil {
		return nil, fmt.Errorf("encoder: %w", err)
	}
	spec := cfg.Engine.Spec()
	spec.Model = cmp.Or(cfg.Model, spec.Model)
	if err := checkNames(cfg, spec); err != nil {
		return nil, err
	}
	var boot [8]byte
	rand.Read(boot[:])
	e := &Encoder{
		cfg:     cfg,
		spec:    spec,
		boot:    hex.EncodeToString(boot[:]),
		metrics: newMetrics(cfg.Registry, spec.Backend),
		flights: resolve.Flight[*arena.Buf]{Share: (*arena.Buf).Retain},
		ready:   make(chan struct{}, maxReady),
		engine:  make(chan struct{}, 1),
	}
	e.registerBounds(cfg.Registry)
	return e, nil
}

// checkNames refuses names that say something else of objects than what they are.
func checkNames(cfg Config, spec engine.EncoderSpec) error {
	ns := cfg.Namespace
	switch {
	case ns.Protocol == embedding.V3 && cfg.VLLM == nil:
		return fmt.Errorf("encoder: namespace %s without vLLM's naming of pictures", ns)
	case ns.Protocol == embedding.V3:
		return cfg.VLLM.Validate()
	case cfg.VLLM != nil:
		return fmt.Errorf("encoder: namespace %s with vLLM's naming of pictures", ns)
	case ns.DType != spec.DType || ns.Encoder != spec.Fingerprint:
		return fmt.Errorf("encoder: namespace %s does not belong to the engine (dtype %s, fingerprint %s)", ns, spec.DType, spec.Fingerprint)
	}
	return nil
}

// Drain has the Encoder announce that it takes no more requests. It goes on with those that come all the same.
func (e *Encoder) Drain() { e.leaving.Store(true) }

// Idle says whether anything besides calls keeps this Encoder from leaving.
func (e *Encoder) Idle() bool { return true }

// HandOff stores what the cache has and the Store lacks, and returns how many objects it was.
func (e *Encoder) HandOff(ctx context.Context) int {
	return e.cfg.Publisher.HandOff(ctx, e.cfg.Cache.Hot())
}

// Announcement says what this Encoder is.
func (e *Encoder) Announcement() control.Announcement {
	a := e.announcement()
	if err := e.Ready(); err != nil {
		a.Ready, a.Reason = false, err.Error()
	}
	if e.leaving.Load() {
		a.Ready, a.Reason = false, control.Draining
	}
	return a
}

func (e *Encoder) announcement() control.Announcement {
	ns, rules := e.cfg.Namespace, e.spec.Processing
	return control.Announcement{
		Role: "encoder", Name: e.cfg.Name, Boot: e.boot, Version: e.cfg.Version,
		Wire: transport.WireVersion, Keys: transport.KeyVersion,
		Model: e.spec.Model, Engine: e.spec.Engine, Backend: e.spec.Backend.String(), Cols: e.spec.Cols, DType: e.spec.DType,
		Modelled: e.spec.Modelled, Ready: true,
		Namespace: &ns, VLLM: e.cfg.VLLM, Processing: &rules, MaxRows: e.spec.MaxRows,
		Running: int(e.running.Load()), Waiting: int(e.waiting.Load()),
		Held: e.cfg.Cache.Version(),
	}
}

// layout returns the layout of a picture that the engine gets in this size.
func (e *Encoder) layout(ctx context.Context, width, height int) (embedding.Layout, error) {
	l, err := e.cfg.Engine.Layout(ctx, width, height)
	if err != nil {
		return l, fmt.Errorf("layout of %dx%d: %w", width, height, err)
	}
	return l, nil
}

// format is that of the objects in the cache and the Store.
func (e *Encoder) format() embedding.Protocol { return e.cfg.Namespace.Protocol }

// contract returns what an object of this layout in the cache or the Store must satisfy.
func (e *Encoder) contract(l embedding.Layout) embedding.Contract {
	return embedding.Contract{Rows: l.Rows(), Cols: e.spec.Cols, DType: e.cfg.Namespace.DType}
}
