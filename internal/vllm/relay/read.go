// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// want is an object to be read.
type want struct {
	key   embedding.Key
	dtype embedding.DType // that of the key
	era   int             // of what was learned, in which the key was made
	hash  string
	grid  Grid
}

// reading is an object that is being read, or was and is in use. All who want it at the same time share it.
type reading struct {
	want
	done chan struct{} // closed when the fields below are set
	buf  *arena.Buf    // the object; nil with err
	meta embedding.Meta
	err  error

	users int // guarded by reader.mu
}

// payload is what goes to the consumer.
func (r *reading) payload() []byte { return r.buf.Bytes()[embedding.HeaderBytesV3:] }

// reader reads and checks objects.
type reader struct {
	cfg     *Config
	learned *learned
	metrics *metrics
	found   func() // after the frame came to be known
	bg      sync.WaitGroup
	slots   chan struct{} // of background writes

	mu   sync.Mutex // guards what follows
	open map[embedding.Key]*reading
}

// maxWrites bounds the sums that are stored, and the objects that are removed, at the same time. One more is left out:
// the next reader does it.
const maxWrites = 8

func newReader(cfg *Config, l *learned, m *metrics) *reader {
	return &reader{cfg: cfg, learned: l, metrics: m, found: func() {}, slots: make(chan struct{}, maxWrites), open: map[embedding.Key]*reading{}}
}

// get reads objects, whose keys differ, and returns when all are there or have an error. Each has to be given back.
func (r *reader) get(ctx context.Context, wants []want) []*reading {
	out := make([]*reading, len(wants))
	var mine []*reading
	r.mu.Lock()
	for i, w := range wants {
		o := r.open[w.key]
		if o == nil {
			o = &reading{want: w, done: make(chan struct{})}
			r.open[w.key] = o
			mine = append(mine, o)
		}
		o.users++
		out[i] = o
	}
	r.mu.Unlock()
	if len(mine) > 0 {
		r.read(ctx, mine)
	}
	for _, o := range out {
		<-o.done // a reading ends at its deadline
	}
	return out
}

// giveBack ends a use of o.
func (r *reader) giveBack(o *reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.users--; o.users > 0 {
		return
	}
	delete(r.open, o.key)
	if o.buf != nil {
		o.buf.Release()
	}
}

// read reads objects and their sums in one call.
func (r *reader) read(ctx context.Context, objects []*reading) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.StoreTimeout)
	defer cancel()
	wants := make([]store.Want, 0, 2*len(objects))
	var asked []*reading
	for _, o := range objects {
		w, err := r.wantOf(o)
		if err != nil {
			o.err = err
			close(o.done)
			continue
		}
		asked = append(asked, o)
		wants = append(wants, w, store.Want{Key: sumKey(o.key), Bytes: sumBytes, Exact: true})
	}
	if len(asked) == 0 {
		return
	}
	gots := r.cfg.Store.Get(ctx, wants)
	for i, o := range asked {
		r.take(o, gots[2*i], gots[2*i+1])
		close(o.done)
	}
}

// wantOf says how large an object is; at most, as long as no frame is known.
func (r *reader) wantOf(o *reading) (store.Want, error) {
	f, ok := r.learned.known()
	if !ok {
		return store.Want{Key: o.key, Bytes: r.cfg.MaxObjectBytes}, nil
	}
	c, err := f.contract(o.grid, o.dtype)
	if err == nil && c.PayloadBytes()+embedding.HeaderBytesV3 > r.cfg.MaxObjectBytes {
		err = fmt.Errorf("%w: %d bytes, more than %d", errTooLarge, c.PayloadBytes(), r.cfg.MaxObjectBytes)
	}
	return store.Want{Key: o.key, Bytes: c.PayloadBytes() + embedding.HeaderBytesV3, Exact: true}, err
}

// take checks what was read.
func (r *reader) take(o *reading, object, sum store.Got) {
	if sum.Buf != nil {
		defer sum.Buf.Release()
	}
	if o.err = object.Err; o.err != nil {
		return
	}
	if o.err = r.check(o, object.Buf.Bytes(), sum); o.err != nil {
		object.Buf.Release()
		return
	}
	o.buf = object.Buf
}

// check does so in this order: header, contract, sum. What breaks its contract is left where it is, since others may
// have use for it; what is corrupt goes.
func (r *reader) check(o *reading, object []byte, sum store.Got) error {
	_, meta, payload, err := embedding.Inspect(object, o.key)
	if err != nil {
		return err
	}
	f, found, err := r.learned.frameOrFind(o.want, meta)
	if err != nil {
		return err
	}
	c, err := f.contract(o.grid, o.dtype)
	if err == nil {
		err = c.Check(meta.Rows, meta.Cols, meta.DType)
	}
	if err != nil {
		return err
	}
	if found {
		r.found()
	}
	o.meta = meta
	if sum.Err == nil {
		if err = checkSum(sum.Buf.Bytes(), o.key, object); err == nil {
			return nil
		}
		if errors.Is(err, embedding.ErrCorrupt) {
			r.background(func(ctx context.Context) error {
				return r.cfg.Store.Remove(ctx, []embedding.Key{o.key, sumKey(o.key)})
			})
			return err
		}
	} else if !errors.Is(sum.Err, store.ErrMiss) {
		return sum.Err // there may be one
	}
	if err := embedding.CheckFinite(payload, meta.DType); err != nil {
		return err
	}
	r.keepSum(o.key, object)
	return nil
}

// keepSum stores the sum of an object that had none.
func (r *reader) keepSum(key embedding.Key, object []byte) {
	buf, err := r.cfg.Arena.Reserve(sumBytes)
	if err != nil {
		return
	}
	writeSum(buf.Bytes(), key, object)
	buf.Commit()
	if !r.background(func(ctx context.Context) error {
		defer buf.Release()
		return r.cfg.Store.Put(ctx, sumKey(key), buf, store.PutOptions{})
	}) {
		buf.Release()
	}
}

// background makes a call that nobody waits for; false if too many are on their way.
func (r *reader) background(call func(context.Context) error) bool {
	select {
	case r.slots <- struct{}{}:
	default:
		return false
	}
	r.bg.Go(func() {
		defer func() { <-r.slots }()
		ctx, cancel := context.WithTimeout(context.Background(), r.cfg.StoreTimeout)
		defer cancel()
		if err := call(ctx); err != nil {
			r.metrics.sums.Inc()
			r.cfg.Logger.Debug("a sum was not stored, or a corrupt object not removed", "cause", err)
		}
	})
	return true
}
