// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
	"afterimage/internal/vllm/consumer"
)

// Brought is what became of a picture.
type Brought struct {
	Hash     string // vLLM's name of it
	Grid     Grid
	Transfer string // under which it is at the consumer; "" if it is not there
	Result   Result
}

// Result says how, or why not.
type Result string

// The results: the first three are successes.
const (
	Written  = Result(consumer.Written)
	Followed = Result(consumer.Followed)
	Resident = Result(consumer.Resident)

	Unknown  Result = "unknown"  // no Encoder has said enough of it
	Absent   Result = "absent"   // the Store does not have it
	StoreErr Result = "store"    // the Store cannot be asked, or has no memory for the answer
	Contract Result = "contract" // the object is not what the prompt has room for
	Corrupt  Result = "corrupt"  // the object is not the one that was there before
	Refused  Result = "refused"  // the consumer refuses it, or gave it up
	Failed   Result = "failed"   // the consumer cannot be reached, or a write broke
	Unfit    Result = "unfit"    // the consumer cannot be written to as it is run
)

var results = []Result{Written, Followed, Resident, Unknown, Absent, StoreErr, Contract, Corrupt, Refused, Failed, Unfit}

// resultOf returns why something failed.
func resultOf(err error) Result {
	switch {
	case errors.Is(err, errUnknown), errors.Is(err, errNoName):
		return Unknown
	case errors.Is(err, store.ErrMiss):
		return Absent
	case store.Classified(err):
		return StoreErr
	case errors.Is(err, embedding.ErrCorrupt), errors.Is(err, embedding.ErrNotFinite), errors.Is(err, embedding.ErrMalformed):
		return Corrupt
	case errors.Is(err, embedding.ErrContract), errors.Is(err, errTooLarge):
		return Contract
	case errors.Is(err, consumer.ErrUnfit), errors.Is(err, consumer.ErrLeftAlone):
		return Unfit
	case errors.As(err, new(*consumer.RefusedError)):
		return Refused
	}
	return Failed
}

// Batch is what was brought for one request. It has to be ended.
type Batch struct {
	Items []Brought // per picture

	r        *Relay
	consumer string
	era      int // of what was learned
	ids      []ID
}

// item is one embedding of a batch.
type item struct {
	want
	at      []int // pictures
	reading *reading
	id      ID
	err     error
	how     consumer.How
}

// Bring has the embeddings of pictures at the consumer, as far as the Store has them. It returns before the deadline of
// its parts, whatever ctx says: what is begun at a consumer is finished or given up in order.
func (r *Relay) Bring(ctx context.Context, at string, pictures []Picture) *Batch {
	start := time.Now()
	b := &Batch{Items: make([]Brought, len(pictures)), r: r, consumer: at}
	if !r.begin() {
		return b
	}
	defer r.calls.Done()
	items := r.plan(pictures, b)
	r.read(ctx, items)
	r.deliver(ctx, at, items, b)
	if again := lost(items); len(again) > 0 {
		r.deliver(ctx, at, again, b)
	}
	for _, it := range items {
		if it.reading != nil {
			r.reader.giveBack(it.reading)
		}
		for _, i := range it.at {
			out := &b.Items[i]
			if it.err != nil {
				out.Result = resultOf(it.err)
				continue
			}
			out.Transfer, out.Result = it.id.Text, Result(it.how)
		}
	}
	for _, it := range b.Items {
		r.metrics.items.WithLabelValues(string(it.Result)).Inc()
	}
	r.metrics.seconds.Observe(time.Since(start).Seconds())
	return b
}

// plan names the pictures, and puts equal ones together.
func (r *Relay) plan(pictures []Picture, b *Batch) []*item {
	var items []*item
	byHash := map[string]*item{}
	names, era := r.learned.namespace()
	b.era = era
	for i, p := range pictures {
		out := &b.Items[i]
		out.Result = Unknown
		if names == (embedding.Namespace{}) {
			continue
		}
		hash, ok := r.learned.hash(p)
		if !ok {
			continue
		}
		if out.Grid, ok = r.learned.grid(p.Shape); !ok {
			continue
		}
		out.Hash = hash
		it := byHash[hash]
		switch {
		case it == nil:
			it = &item{want: wanted(names, era, hash, out.Grid)}
			byHash[hash] = it
			items = append(items, it)
		case it.grid != out.Grid:
			continue // one name, two sizes: somebody is wrong
		}
		it.at = append(it.at, i)
	}
	return items
}

// wanted is the object of a picture that the engine calls hash, in an era of what was learned.
func wanted(names embedding.Namespace, era int, hash string, g Grid) want {
	return want{key: names.Key(embedding.Identifier(hash)), dtype: names.DType, era: era, hash: hash, grid: g}
}

// read reads what the consumer is not thought to have already.
func (r *Relay) read(ctx context.Context, items []*item) {
	_, framed := r.learned.known()
	var wants []want
	var of []*item
	for _, it := range items {
		if framed && r.recent.has(it.hash) {
			continue
		}
		wants, of = append(wants, it.want), append(of, it)
	}
	if len(wants) == 0 {
		return
	}
	for i, o := range r.reader.get(ctx, wants) {
		of[i].reading, of[i].err = o, o.err
	}
}

// deliver brings to the consumer what was read, and what it may have.
func (r *Relay) deliver(ctx context.Context, at string, all []*item, b *Batch) {
	frame, ok := r.learned.knownIn(b.era)
	var sent []*item
	var deliveries []consumer.Item
	for _, it := range all {
		if it.err != nil {
			continue
		}
		if !ok {
			it.err = errUnknown
			continue
		}
		c, err := frame.contract(it.grid, it.dtype)
		if err == nil {
			it.id, err = r.ids.take(at)
		}
		if it.err = err; err != nil {
			continue
		}
		b.ids = append(b.ids, it.id)
		sent = append(sent, it)
		deliveries = append(deliveries, consumer.Item{
			Transfer: it.id.Text, Hash: it.hash, Rows: c.Rows, Cols: c.Cols, DType: strings.TrimPrefix(c.DType.String(), "torch."), Size: c.DType.Bytes(),
			Payload: func(ctx context.Context) ([]byte, error) { return r.payload(ctx, it) },
		})
	}
	if len(sent) == 0 {
		return
	}
	for i, o := range r.cfg.Consumers.Deliver(ctx, at, deliveries) {
		it := sent[i]
		if it.how, it.err = o.How, o.Err; o.Err != nil {
			r.recent.drop(it.hash)
			if errors.Is(o.Err, consumer.ErrUnsettled) {
				b.keep(it.id)
			}
			r.cfg.Logger.Debug("not delivered", "consumer", at, "hash", it.hash, "cause", o.Err)
			continue
		}
		r.recent.put(it.hash)
		if o.How == consumer.Written {
			r.metrics.bytes.Add(float64(deliveries[i].Bytes()))
		}
	}
}

// lost returns the items whose other writer gave up, ready for a try of their own.
func lost(items []*item) (again []*item) {
	for _, it := range items {
		if errors.Is(it.err, consumer.ErrLost) {
			it.err = nil
			again = append(again, it)
		}
	}
	return again
}

// payload returns the values of it, which it reads if that was put off. No two goroutines call it for one item.
func (r *Relay) payload(ctx context.Context, it *item) ([]byte, error) {
	if it.reading == nil {
		it.reading = r.reader.get(ctx, []want{it.want})[0]
	}
	if it.reading.err != nil {
		return nil, it.reading.err
	}
	return it.reading.payload(), nil
}

// End ends the use of what was brought. If the request failed, or never came to the consumer, ok is false: then the
// consumer is told to give up what it holds for it, in the background.
func (b *Batch) End(ok bool) {
	if b == nil || len(b.ids) == 0 {
		return
	}
	ids := b.ids
	b.ids = nil
	free := func() {
		for _, id := range ids {
			b.r.ids.done(id)
		}
	}
	if ok {
		free()
		return
	}
	if !b.r.begin() {
		return // a successor does it
	}
	go func() {
		defer b.r.calls.Done()
		var transfers []string
		for _, id := range ids {
			transfers = append(transfers, id.Text)
		}
		// One that could not be told is tried on by the client of consumers, and after that by a successor.
		if b.r.cfg.Consumers.Abandon(context.WithoutCancel(b.r.ctx), b.consumer, transfers, false) == nil {
			free()
			return
		}
		for _, id := range ids {
			b.r.forgetLater(id)
		}
	}()
}

// keep leaves id to whoever tells its consumer that it is given up, at the latest a successor.
func (b *Batch) keep(id ID) {
	b.ids = slices.DeleteFunc(b.ids, func(x ID) bool { return x == id })
	b.r.forgetLater(id)
}

// forgetLater has id in use as long as it matters to its consumer.
func (r *Relay) forgetLater(id ID) { time.AfterFunc(buryFor, func() { r.ids.done(id) }) }

// recent are hashes that consumers were brought, so that the next one of them may be there still.
type recent struct {
	mu   sync.Mutex // guards what follows
	seen halves[string, struct{}]
}

func (r *recent) has(hash string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.seen.get(hash)
	return ok
}

func (r *recent) put(hash string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.put(hash, struct{}{})
}

func (r *recent) dropAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = halves[string, struct{}]{}
}

func (r *recent) drop(hash string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen.young, hash)
	delete(r.seen.old, hash)
}
