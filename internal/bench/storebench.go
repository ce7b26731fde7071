// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/resolve"
	"afterimage/internal/store"
	"afterimage/internal/store/ram"
)

// StoreBench is what the benchmarks of the reuse core need: a Store in a process of its own, on this host.
type StoreBench struct {
	Binary   string    // this program
	Env      []string  // of the processes; the configuration in it is left out
	Progress io.Writer // for people; nil for none
	Redis    bool      // compare with a redis-server
	Only     Only      // what of a hit is measured; all of it when empty
	Rounds   Rounds
	Sizes    []int // bytes of the payloads, multiples of 256
	Counts   []int // objects of one request
	Seeding  Seeding

	// serve starts a Store of so many bytes on a socket, and returns its end and the URL of its metrics;
	// nil runs Binary.
	serve func(ctx context.Context, socket string, bytes int64) (stop func(), metrics string, err error)
}

// DefaultStoreBench returns the figures that the targets are stated for.
func DefaultStoreBench() StoreBench {
	return StoreBench{Redis: true, Rounds: DefaultRounds(), Sizes: []int{16 << 10, 1 << 20, 30 << 20}, Counts: []int{1, 4}, Seeding: DefaultSeeding()}
}

// Only names a part of bench resolver.
type Only string

// The parts.
const (
	OnlyCopy   Only = "copy"   // hits that are copied into the own arena
	OnlySerial Only = "serial" // objects one by one against a batch
)

// cols is the width of the benches' embeddings: 64 float32, so that 256 bytes are a row.
const cols = 64

// storeRig is the Store and this process's connections to it.
type storeRig struct {
	end     func() // of the Store; nil before its start
	dir     string
	socket  string
	metrics string // URL
	arena   *arena.Arena
	lend    *counting // objects come on loan
	own     *counting // they are copied out of the Store's memory
	copy    *counting // they come through the socket
	redis   *redis    // nil when there is none
	noRedis string    // why
}

// counting tells what a client asked of its Store.
type counting struct{ store.Store }

// stats are those of the client below; none of another.
func (c *counting) stats() (st ram.ClientStats) {
	if s, ok := c.Store.(interface{ Stats() ram.ClientStats }); ok {
		st = s.Stats()
	}
	return st
}

// calls returns how often the Store's process was asked something.
func (c *counting) calls() int64 { return int64(c.stats().Calls) }

// PutAll implements store.Batcher.
func (c *counting) PutAll(ctx context.Context, puts []store.Putting) []error {
	return c.Store.(store.Batcher).PutAll(ctx, puts)
}

// registrations returns how often memory was shown to the Store.
func (c *counting) registrations() int64 { return int64(c.stats().Shown) }

// NoneStored implements store.Excluder; it reaches no Store.
func (c *counting) NoneStored(keys []embedding.Key) bool {
	return c.Store.(store.Excluder).NoneStored(keys)
}

// largest is the most bytes that one request moves.
func (b StoreBench) largest() int {
	most := 0
	for _, size := range b.Sizes {
		for _, n := range b.Counts {
			most = max(most, size*n)
		}
	}
	return most
}

// start brings up the Store, the peer, and the connections.
func (b StoreBench) start(ctx context.Context) (r *storeRig, err error) {
	r = &storeRig{noRedis: "not asked for"}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	if r.dir, err = os.MkdirTemp("", "afterimage-bench-"); err != nil {
		return r, err
	}
	r.socket = filepath.Join(r.dir, "store.sock")
	room := int64(4*b.largest() + 64<<20 + 2*b.Seeding.bytes())
	serve := b.serve
	if serve == nil {
		serve = newLauncher(b.Binary, b.Env).store
	}
	if r.end, r.metrics, err = serve(ctx, r.socket, room); err != nil {
		return r, err
	}
	if r.arena, err = arena.New(arena.Config{Name: "afterimage-bench", Bytes: room}); err != nil {
		return r, err
	}
	for _, c := range []struct {
		to           **counting
		copy, stream bool
	}{{to: &r.lend}, {to: &r.own, copy: true}, {to: &r.copy, stream: true}} {
		if *c.to, err = r.dial(ctx, ram.ClientConfig{Copy: c.copy, Stream: c.stream}); err != nil {
			return r, err
		}
	}
	if b.Redis {
		if r.redis, r.noRedis, err = startRedis(ctx, r.dir, b.Env); err != nil {
			return r, err
		}
	}
	return r, r.settle(ctx)
}

// dial opens one more connection to the Store.
func (r *storeRig) dial(ctx context.Context, cfg ram.ClientConfig) (*counting, error) {
	cfg.Path, cfg.Arena = r.socket, r.arena
	client, err := ram.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &counting{Store: client}, nil
}

// stop ends all of it.
func (r *storeRig) stop() error {
	var errs []error
	for _, c := range []*counting{r.lend, r.own, r.copy} {
		if c != nil {
			errs = append(errs, c.Store.Close())
		}
	}
	if r.redis != nil {
		r.redis.stop()
	}
	if r.end != nil {
		r.end()
	}
	if r.arena != nil {
		errs = append(errs, r.arena.Close())
	}
	if r.dir != "" {
		errs = append(errs, os.RemoveAll(r.dir))
	}
	return errors.Join(errs...)
}

// store starts a Store and waits until its socket is there.
func (l launcher) store(ctx context.Context, socket string, bytes int64) (stop func(), metrics string, err error) {
	var said struct{ Msg, Address string }
	args := []string{"store", "--listen", "127.0.0.1:0", "--path", socket, "--bytes", strconv.FormatInt(bytes, 10), "--log-format", "json"}
	c, err := startChild("afterimage store", l.binary, args, l.env, func(line string) bool {
		return json.Unmarshal([]byte(line), &said) == nil && said.Msg == "listening" && said.Address != ""
	})
	if err != nil {
		return nil, "", err
	}
	if err := c.await(ctx); err != nil {
		c.stop()
		return nil, "", err
	}
	return c.stop, "http://" + said.Address + "/metrics", nil
}

// counter reads a series of the Store.
func (r *storeRig) counter(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.metrics, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.Join(lines.Err(), fmt.Errorf("bench: the Store has no series %s", name))
}

// lossRows say that nothing was lost on the way: else the other rows mean nothing.
func (r *storeRig) lossRows(ctx context.Context) ([]Row, error) {
	var rows []Row
	for _, s := range []struct{ name, series string }{
		{"evictions", "afterimage_store_evictions_total"}, {"rejected PUTs", "afterimage_store_rejected_puts_total"},
	} {
		n, err := r.counter(ctx, s.series)
		if err != nil {
			return nil, err
		}
		rows = append(rows, none("whole run", s.name, n))
	}
	return rows, nil
}

// none returns a row whose value must be zero.
func none(name, metric string, value float64) Row {
	ok := value == 0
	return Row{Case: name, Metric: metric, Value: value, OK: &ok}
}

// objects are what one case moves, in memory of this process.
type objects struct {
	items []resolve.Item
	metas []embedding.Meta
	bufs  []*arena.Buf
}

// make builds n sealed objects with payloads of size bytes.
func (r *storeRig) make(name string, n, size int) (*objects, error) {
	o := &objects{}
	rows := size / (cols * 4)
	layout := embedding.Layout{Parts: []embedding.Part{{Rows: rows, Positions: rows}}}
	m := embedding.Meta{Rows: rows, Cols: cols, DType: embedding.Float32, Layout: layout}
	for i := range n {
		key := embedding.Key(fmt.Sprintf("bench@id:%s/%d/%d/%d", name, size, n, i))
		buf, err := r.arena.Reserve(embedding.A1.ObjectBytes(layout, cols, m.DType))
		if err != nil {
			return o, errors.Join(err, o.release())
		}
		o.bufs = append(o.bufs, buf)
		payload := buf.Bytes()[embedding.A1.PayloadOffset(layout):]
		for j := range payload {
			payload[j] = byte(i+j) & 0x3f
		}
		if err := embedding.A1.Seal(buf.Bytes(), key, m); err != nil {
			return o, errors.Join(err, o.release())
		}
		buf.Commit()
		o.items = append(o.items, resolve.Item{Key: key, Contract: embedding.Contract{Rows: rows, Cols: cols, DType: m.DType}})
		o.metas = append(o.metas, m)
	}
	return o, nil
}

func (o *objects) release() error {
	for _, b := range o.bufs {
		b.Release()
	}
	o.bufs = nil
	return nil
}

func (o *objects) keys() []embedding.Key {
	keys := make([]embedding.Key, len(o.items))
	for i, it := range o.items {
		keys[i] = it.Key
	}
	return keys
}

// quietLog drops what parts under measurement log.
var quietLog = slog.New(slog.DiscardHandler)

// sizeName is a size for people.
func sizeName(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%dMiB", n>>20)
	}
	return fmt.Sprintf("%dKiB", n>>10)
}
