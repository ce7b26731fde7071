// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"afterimage/internal/arena"
	"afterimage/internal/store/ram"
)

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
