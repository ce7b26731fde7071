// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/arena"
	"afterimage/internal/batch"
	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/engine"
	"afterimage/internal/publish"
	"afterimage/internal/resolve"
	"afterimage/internal/store"
	"afterimage/internal/transport"
)

// Config wires a Prefill worker. It owns none of its parts.
type Config struct {
	Name     string // unique in the fleet, e.g. "prefill-0"
	Version  string
	Model    string // name to serve under; "" takes the engine's
	Engine   engine.Text
	Receiver transport.Receiver
	Protocol embedding.Protocol // format of the objects that Encoders deliver
	// Arena is what the Receiver grants and the Store's copies are made in; nil takes it to have room.
	Arena *arena.Arena
	// Residents are the embeddings that are kept; nil keeps none. Their memory is the Receiver's, which
	// must be set to evict them.
	Residents *Residents
	// Store is where embeddings are looked for before an Encoder is asked; nil leaves the Store to the
	// Encoders. Unless it is a *store.Guard already, it is put behind one that drains.
	Store store.Store
	// Publisher takes residents that the Store lacks when the worker leaves; nil leaves them behind.
	Publisher *publish.Publisher
	// ReadBufferBytes bounds reads from the Store that copy, all together; 0 is 128 MiB.
	ReadBufferBytes int64
	// HandOff, where it has memory, hands computed prompts over to decode workers when a gateway has one.
	HandOff HandOff
	// Decode makes this a decode worker: it computes no prompts, and Receiver and PoolBytes are for the states of
	// those that P/Ds have computed.
	Decode bool
	// PoolBytes is the memory for embeddings; a request that needs more is refused at prepare.
	PoolBytes int64
	// MaxBodyBytes bounds a request body, whose images are replaced already.
	MaxBodyBytes int64
	// GrantTimeout bounds the wait for memory at prepare.
	GrantTimeout time.Duration
	// PrepareTTL is how long grants are kept for a chat call that does not come.
	PrepareTTL time.Duration
	// ItemTimeout bounds the wait for one embedding; after it the item is missing.
	ItemTimeout time.Duration
	// StepTokens is how much of all prompts is computed between two tokens of an answer; 0 means 128.
	StepTokens int
	// MaxWaiting bounds the requests that wait for a sequence; more are refused with 429.
	MaxWaiting int
	// WriteTimeout bounds each write of a stream, never a whole answer.
	WriteTimeout time.Duration
	Registry     prometheus.Registerer
	Logger       *slog.Logger
}

// Prefill serves prepare and chat calls. All methods may be called from any goroutine.
type Prefill struct {
	cfg     Config
	spec    engine.TextSpec
	boot    string
	created int64
	metrics *metrics
	book    *book
	sched   *batch.Scheduler
	states  *states // nil where nothing is handed over
	native  calls   // into the engine, besides those of sched

	resolver   *resolve.Resolver // nil without a Store
	loading    atomic.Int64      // bytes that reads in the background will take
	background sync.WaitGroup    // reads, and removals of wrong objects
	leaving    atomic.Bool
}

// New returns a worker that is ready to serve. It has the engine's Runner for itself until Close.
func New(cfg Config) (*Prefill, error) {
	var boot [8]byte
	rand.Read(boot[:])
	spec := cfg.Engine.Spec()
	spec.Model = cmp.Or(cfg.Model, spec.Model)
	p := &Prefill{
		cfg: cfg, spec: spec, boot: hex.EncodeToString(boot[:]), created: time.Now().Unix(),
		book: newBook(),
	}
	if err := p.openStore(); err != nil {
		return nil, err
	}
	var err error
	if p.states, err = newStates(p); err != nil {
		return nil, err
	}
	p.sched = batch.New(cfg.Engine.Runner(), batch.Config{StepTokens: cfg.StepTokens, MaxWaiting: cfg.MaxWaiting})
	p.metrics = newMetrics(cfg.Registry, p.role(), p.sched)
	p.registerBounds(cfg.Registry)
	engine.RegisterBackend(cfg.Registry, spec.Backend)
	return p, nil
}

// openStore puts what reads embeddings before the Store, if there is one.
func (p *Prefill) openStore() (err error) {
	cfg := p.cfg
	if cfg.Store == nil {
		return nil
	}
	if p.cfg.Store, err = store.Guarded(cfg.Store, cfg.Logger); err != nil {
		return err
	}
	p.resolver, err = resolve.New(resolve.Config{
		Cache: room{cfg.Residents}, Store: p.cfg.Store, Protocol: cfg.Protocol, ReadBufferBytes: cfg.ReadBufferBytes,
		Timeout: loadTimeout, Logger: cfg.Logger,
	})
	if err != nil {
		return err
	}
	cfg.Registry.MustRegister(p.resolver.Metrics())
	return nil
}

// Close gives back the grants of requests that were prepared and never posted, ends those in work, and
// waits for what runs in the background.
func (p *Prefill) Close() {
	p.book.close()
	p.states.close()
	p.sched.Close()
	p.background.Wait()
}

// Drain has the worker announce that it takes no more requests. It goes on with those that come all the same.
func (p *Prefill) Drain() { p.leaving.Store(true) }

// Idle says whether anything besides calls keeps this worker from leaving: a request that is prepared, or a prompt
// that a decode worker is to fetch.
func (p *Prefill) Idle() bool { return p.book.size() == 0 && p.states.size() == 0 }

// HandOff stores what is resident and the Store lacks, and returns how many objects it was. It does nothing
// without a Publisher.
func (p *Prefill) HandOff(ctx context.Context) int {
	if p.cfg.Publisher == nil || !p.cfg.Residents.on() {
		return 0
	}
	defer p.cfg.Residents.settle() // the publisher has used them
	return p.cfg.Publisher.HandOff(ctx, p.cfg.Residents.Cache.Hot())
}

// Announcement says what this worker is.
func (p *Prefill) Announcement() control.Announcement {
	a := p.announcement()
	if err := p.Ready(); err != nil {
		a.Ready, a.Reason = false, err.Error()
	}
	if p.leaving.Load() {
		a.Ready, a.Reason = false, control.Draining
	}
	return a
}

func (p *Prefill) announcement() control.Announcement {
	stats := p.sched.Stats()
	return control.Announcement{
		Role: p.role(), Name: p.cfg.Name, Boot: p.boot, Version: p.cfg.Version,
		Wire: transport.WireVersion, Keys: transport.KeyVersion,
		Model: p.spec.Model, Engine: p.spec.Engine, Backend: p.spec.Backend.String(), Cols: p.spec.Cols, DType: p.spec.DType,
		Modelled: p.spec.Modelled, Ready: true,
		Context: p.spec.Context, Cells: p.cfg.Engine.Runner().Limits().Cells, PoolBytes: p.cfg.PoolBytes, Created: p.created,
		Running: stats.Running, Waiting: stats.Waiting, HandsOver: p.states != nil,
	}
}

// role is what the worker calls itself.
func (p *Prefill) role() string {
	if p.cfg.Decode {
		return "decode"
	}
	return "prefill"
}

// Routes mounts the worker API.
func (p *Prefill) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+control.PathWorker, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(p.Announcement())
	})
	switch {
	case p.cfg.Decode:
		mux.HandleFunc("POST "+control.PathAdopt, p.serveAdopt)
		mux.HandleFunc("DELETE "+control.PathAdopt+"/{request}", p.serveRelease)
	default:
		mux.HandleFunc("POST "+control.PathPrepare, p.servePrepare)
		mux.HandleFunc("DELETE "+control.PathPrepare+"/{request}", p.serveRelease)
	}
	if p.states != nil {
		mux.HandleFunc("POST "+control.PathHandOff, p.serveHandOff)
		mux.HandleFunc("DELETE "+control.PathHandOff+"/{request}", p.serveDropState)
	}
	mux.HandleFunc("POST "+control.PathChat, p.serveChat)
	mux.HandleFunc("POST "+control.PathText, p.serveText)
}

// retryAfter is what a caller is told to wait when this worker has no room.
const retryAfter = time.Second
