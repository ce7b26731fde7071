// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/vllm/consumer"
)

// Consumers is what a Relay needs of package consumer.
type Consumers interface {
	Deliver(ctx context.Context, address string, items []consumer.Item) []consumer.Outcome
	Abandon(ctx context.Context, address string, transfers []string, late bool) error
	Forget(address string)
}

// Config wires a Relay. Zero values mean the default, which a field names; the others are required.
type Config struct {
	Store     store.Store // reads into Arena, and quarantines what is in doubt
	Arena     *arena.Arena
	Namespace embedding.Namespace // of vLLM's Encoders, protocol V3; zero: SetNamespace says it
	Consumers Consumers
	// State is the path of the file in which is written down what a successor has to know. One gateway uses it at a time.
	State string

	StoreTimeout   time.Duration // of reading the objects of a request; 2 s
	MaxObjectBytes int           // larger ones are left to Encoders; a quarter of the arena
	Metrics        prometheus.Registerer
	Logger         *slog.Logger
}

// Relay brings embeddings from the Store to vLLM's prefill workers.
type Relay struct {
	cfg     Config
	learned learned
	reader  *reader
	ids     *ids
	metrics *metrics
	recent  recent

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	bg   sync.WaitGroup
	save chan struct{} // what was learned is to be written down

	lesson  chan want       // an object that tells the frame; one at a time
	lessons []time.Duration // pauses before it is looked for: Encoders publish after they have answered

	mu     sync.Mutex // guards what follows
	closed bool       // nothing begins any more
	calls  sync.WaitGroup
}

// begin begins a call that Close waits for; false after Close.
func (r *Relay) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.calls.Add(1)
	return true
}

// Why a picture is not brought, besides the errors of Store and consumer.
var (
	errUnknown  = errors.New("relay: no Encoder has said how a picture of this size is laid out")
	errNoName   = errors.New("relay: no Encoder has said how this picture is called")
	errTooLarge = errors.New("relay: the embedding is too large")
)

// New returns a Relay. What an earlier process with the same state left at consumers is abandoned in the background.
func New(cfg Config) (*Relay, error) {
	cfg.StoreTimeout = cmp.Or(cfg.StoreTimeout, 2*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	own := cfg.Namespace != embedding.Namespace{}
	if own {
		if err := checkNamespace(cfg.Namespace); err != nil {
			return nil, err
		}
	}
	cfg.MaxObjectBytes = cmp.Or(cfg.MaxObjectBytes, int(cfg.Arena.Stats().Capacity/4))
	file, s, err := openState(cfg.State)
	if err != nil {
		return nil, fmt.Errorf("relay: state: %w", err)
	}
	r := &Relay{cfg: cfg, ids: newIDs(file, s), metrics: newMetrics(cfg.Metrics), save: make(chan struct{}, 1), lesson: make(chan want, 1)}
	r.lessons = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second, 10 * time.Second}
	cfg.Metrics.MustRegister(cfg.Arena.Collector())
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.reader = newReader(&r.cfg, &r.learned, r.metrics)
	r.reader.found = r.saveSoon
	r.learned.restore(s)
	if own {
		r.learned.setNamespace(cfg.Namespace)
	}
	r.bg.Go(r.keep)
	r.bg.Go(r.study)
	for _, l := range r.ids.predecessors() {
		for _, at := range l.consumers {
			r.bg.Go(func() { r.bury(l, at) })
		}
	}
	return r, nil
}

// Close waits for what is under way and writes down what was learned. What begins later is left to Encoders.
func (r *Relay) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.calls.Wait()
	r.stop()
	r.bg.Wait()
	r.reader.bg.Wait()
	return r.ids.close()
}

// Forget drops the connections to a consumer, which is gone or another process.
func (r *Relay) Forget(address string) { r.cfg.Consumers.Forget(address) }

// SetNamespace says how Encoders call what they store, which may change as they do. What was learned of pictures under
// another namespace is forgotten: it may be of another model.
func (r *Relay) SetNamespace(n embedding.Namespace) error {
	if err := checkNamespace(n); err != nil {
		return err
	}
	if r.learned.setNamespace(n) {
		r.recent.dropAll()
	}
	r.saveSoon()
	return nil
}

func checkNamespace(n embedding.Namespace) error {
	if err := n.Validate(); err != nil {
		return err
	}
	if n.Protocol != embedding.V3 {
		return fmt.Errorf("relay: objects of protocol %s, want %s", n.Protocol, embedding.V3)
	}
	return nil
}

func (r *Relay) saveSoon() {
	select {
	case r.save <- struct{}{}:
	default:
	}
}

// saveEvery spares the disk while a gateway learns.
const saveEvery = 2 * time.Second

// keep writes down what is learned, until Close.
func (r *Relay) keep() {
	for {
		select {
		case <-r.ctx.Done():
			r.write()
			return
		case <-r.save:
		}
		r.write()
		select {
		case <-r.ctx.Done():
		case <-time.After(saveEvery):
		}
	}
}

func (r *Relay) write() {
	err := r.ids.update(r.learned.save)
	if err != nil {
		r.cfg.Logger.Warn("relay: state", "cause", err)
	}
}
