// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/testkit/vllmconsumer"
	"afterimage/internal/vllm/consumer"
)

var namespace = embedding.Namespace{Model: "m", Encoder: embedding.VLLMDefaultEncoder, DType: embedding.BFloat16, Protocol: embedding.V3}

// cols is the width of the tests' embeddings, merge the patches to a row.
const cols, merge = 32, 4

// mapStore is a Store in memory that reads into an arena, as a Mooncake client does.
type mapStore struct {
	arena *arena.Arena

	mu      sync.Mutex // guards what follows
	objects map[embedding.Key][]byte
	gets    int
	err     error         // of all calls
	hold    chan struct{} // Gets wait for its end
	lent    [][]byte      // what Gets have handed out
}

func (s *mapStore) Exists(context.Context, []embedding.Key) ([]store.State, error) {
	panic("not asked")
}
func (s *mapStore) Events(context.Context) <-chan store.Event { return nil }
func (s *mapStore) Capabilities() store.Capabilities          { return store.Capabilities{} }
func (s *mapStore) Close() error                              { return nil }

func (s *mapStore) Get(ctx context.Context, wants []store.Want) []store.Got {
	s.mu.Lock()
	s.gets++
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]store.Got, len(wants))
	for i, w := range wants {
		o, ok := s.objects[w.Key]
		switch {
		case ctx.Err() != nil:
			out[i].Err = fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
		case s.err != nil:
			out[i].Err = s.err
		case !ok:
			out[i].Err = store.ErrMiss
		case len(o) > w.Bytes || w.Exact && len(o) != w.Bytes:
			out[i].Err = fmt.Errorf("%w: %d bytes", store.ErrRejected, len(o))
		default:
			b, err := s.arena.Reserve(len(o))
			if err != nil {
				out[i].Err = fmt.Errorf("%w: %w", store.ErrRejected, err)
				continue
			}
			copy(b.Bytes(), o)
			b.Commit()
			s.lent = append(s.lent, b.Bytes())
			out[i].Buf = b
		}
	}
	return out
}

func (s *mapStore) Put(_ context.Context, k embedding.Key, b *arena.Buf, _ store.PutOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.objects[k]; !ok {
		s.objects[k] = bytes.Clone(b.Bytes())
	}
	return s.err
}

func (s *mapStore) Remove(_ context.Context, keys []embedding.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		delete(s.objects, k)
	}
	return s.err
}

func (s *mapStore) set(k embedding.Key, object []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[k] = object
}

func (s *mapStore) get(k embedding.Key) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.objects[k])
}

func (s *mapStore) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets
}

// object makes a v3 object whose values are v.
func object(rows, cols int, dtype uint32, v byte) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(le.AppendUint32(nil, 0x4D4F4F4E), dtype)
	b = le.AppendUint64(le.AppendUint64(b, uint64(rows)), uint64(cols))
	size := 2
	if dtype == 0 {
		size = 4
	}
	return append(b, bytes.Repeat([]byte{v}, rows*cols*size)...)
}

// rig is a Relay with a Store and a consumer.
type rig struct {
	*Relay
	store    *mapStore
	consumer *vllmconsumer.Consumer
	clients  *consumer.Client
	state    string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	a, err := arena.New(arena.Config{Name: "relay-test", Bytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{
		store:    &mapStore{arena: a, objects: map[embedding.Key][]byte{}},
		consumer: vllmconsumer.Start(t, vllmconsumer.Config{Shards: 2}),
		clients:  consumer.New(consumer.Config{Drain: time.Millisecond, Logger: slog.New(slog.DiscardHandler)}),
		state:    filepath.Join(t.TempDir(), "relay.json"),
	}
	t.Cleanup(r.clients.Close)
	r.Relay = r.open(t)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// open makes a Relay on the rig's parts.
func (r *rig) open(t *testing.T) *Relay {
	t.Helper()
	return r.openUnder(t, namespace)
}

func (r *rig) openUnder(t *testing.T, names embedding.Namespace) *Relay {
	t.Helper()
	relay, err := New(Config{
		Store: r.store, Arena: r.store.arena, Namespace: names, Consumers: r.clients, State: r.state,
		StoreTimeout: 5 * time.Second, Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	relay.lessons = nil // tests have it told by pictures that come twice
	return relay
}

// picture is one of a size, named by what it holds.
func picture(n, width, height int) Picture {
	id := fmt.Sprintf("%064x", n)
	return Picture{Shape: Shape{Model: `"m"`, Width: width, Height: height, Orientation: 1}, UUID: id, Content: id}
}

var small, wide = Grid{1, 16, 16}, Grid{1, 16, 24}

func key(p Picture) embedding.Key { return namespace.Key(embedding.Identifier(p.UUID)) }

// taught has r see picture 0 encoded, taken, and read, so that it knows pictures of 224 x 224 and 336 x 224.
func (r *rig) taught(t *testing.T) {
	t.Helper()
	p := picture(0, 224, 224)
	r.store.set(key(p), object(small.patches()/merge, cols, 12, 0))
	r.Learn(p, p.UUID, small)
	r.Learn(picture(1, 336, 224), picture(1, 336, 224).UUID, wide)
	b := r.Bring(t.Context(), r.consumer.Address(), []Picture{p})
	if b.Items[0].Result != Written {
		t.Fatalf("the first picture is %+v", b.Items[0])
	}
	b.End(false)
	r.empty(t)
}

// empty waits until the consumer holds nothing.
func (r *rig) empty(t *testing.T) {
	t.Helper()
	eventually(t, "the consumer holds no memory", func() bool { return r.consumer.Shards[0].InUse()+r.consumer.Shards[1].InUse() == 0 })
}

// eventually waits until ok, however slow the machine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// reserves returns how often memory was asked for.
func (r *rig) reserves() (n int) {
	for _, op := range r.consumer.Shards[0].Ops() {
		if op == "reserve" || op == "reserve_batch" {
			n++
		}
	}
	return n
}
