// SPDX-License-Identifier: Apache-2.0

package prefill

import (
	"context"
	"slices"
	"time"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/openai"
	"afterimage/internal/resolve"
)

// askTimeout bounds the Store's answer to whether it has an embedding; then an Encoder is asked instead.
// loadTimeout bounds a read.
const (
	askTimeout  = 500 * time.Millisecond
	loadTimeout = 5 * time.Second
)

// contract is what an object for it must satisfy. Where nobody has told the rows, the object's head does,
// within the context.
func (p *Prefill) contract(it *control.PrepareItem) embedding.Contract {
	c := it.Contract
	if c.Rows == 0 {
		c.MaxRows = p.spec.Context
	}
	return c
}

// supply finds out how each embedding of a request comes: residents first, then the Store, then memory for
// an Encoder to deliver into, for all that are left or for none. It returns the times that the last two took.
//
// While it waits for that memory it holds none of its own, so that two requests never hold what the other
// needs: residents are pinned and reads begin when the grants are there.
func (p *Prefill) supply(ctx context.Context, req *control.PrepareRequest) (out []supply, resp control.PrepareResponse, err error) {
	out = make([]supply, len(req.Items))
	start := time.Now()
	stored := p.ask(ctx, req.Items, out)
	resp.StoreMS = ms(time.Since(start))
	start = time.Now()
	if err = p.claim(ctx, req.Items, stored, out); err != nil {
		cancelAll(out)
		return nil, resp, err
	}
	resp.GrantMS = ms(time.Since(start))
	p.load(req.Items, stored, out)
	return out, resp, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ask puts one question to the Store about what is not resident. Where the Store lends, or the size is not
// known, the answer is the embedding; else stored says what there is to read.
func (p *Prefill) ask(ctx context.Context, items []control.PrepareItem, out []supply) (stored []bool) {
	stored = make([]bool, len(items))
	var now, later []int
	// A repair takes no chances with memory: reads that copy may find none, an Encoder's grant is waited for.
	repair := slices.ContainsFunc(items, func(it control.PrepareItem) bool { return it.Force })
	for i := range items {
		switch it := &items[i]; {
		case it.Force:
			p.cfg.Residents.remove(it.Key)
		case p.resolver == nil || it.ByEncoder || p.resident(it) || embedding.ProtocolOf(it.Key) != p.cfg.Protocol:
			// Objects of another format are vLLM's; only an Encoder can make sense of those.
		case p.cfg.Store.Capabilities().Lends || !it.Sized():
			now = append(now, i)
		case !repair && p.room(it.Bytes):
			later = append(later, i)
		}
	}
	if len(now)+len(later) == 0 {
		return stored
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	p.take(ctx, items, now, out)
	keys := make([]embedding.Key, len(later))
	for n, i := range later {
		keys[n] = items[i].Key
	}
	// Two calls where one would do: the answer to the first lets the gateway send the request on while the second
	// reads. That is no later, since a Mooncake cluster takes less to say what it has, 90 us, than to give it, 110 and
	// more (resolve.expectAfter); and a read at once would take memory before it is known whether the request has to
	// wait for some.
	if len(keys) > 0 {
		if states, err := p.cfg.Store.Exists(ctx, keys); err == nil {
			for n, i := range later {
				stored[i] = states[n].Present
			}
		}
	}
	return stored
}

// room says whether a read of so many bytes is likely to find memory, that of residents included. If not, an Encoder is asked for the
// embedding, which reads the Store too, and whose delivery waits for memory in order.
func (p *Prefill) room(bytes int) bool {
	if p.cfg.Arena == nil {
		return true
	}
	st := p.cfg.Arena.Stats()
	free := st.Capacity - st.Reserved - st.Committed - st.Quarantined
	if p.cfg.Residents.on() {
		kept := p.cfg.Residents.Cache.Stats()
		free += kept.Bytes - kept.Foreign
	}
	return free >= 2*int64(bytes)+p.loading.Load()
}

// resident says whether it can be taken from the residents.
func (p *Prefill) resident(it *control.PrepareItem) bool {
	return !it.Force && !it.ByEncoder && p.cfg.Residents.has(it.Key)
}

// take reads at once.
func (p *Prefill) take(ctx context.Context, items []control.PrepareItem, which []int, out []supply) {
	if len(which) == 0 {
		return
	}
	for n, res := range p.resolver.Resolve(ctx, p.wants(items, which, false)) {
		if res.Buf != nil {
			out[which[n]] = p.read(&items[which[n]], held{buf: res.Buf, meta: res.Meta, known: taken(res.Buf)})
		}
	}
}

// read takes what the Store gave for it; what is not as it should be supplies nothing.
func (p *Prefill) read(it *control.PrepareItem, h held) supply {
	switch {
	case !fits(it, p.contract(it), h.meta):
		h.buf.Release()
		return supply{}
	case h.buf.Foreign():
		return supply{found: h, source: control.SourceStore}
	case p.admit(it, &h) != nil:
		return supply{}
	case !p.cfg.Residents.has(it.Key):
		return supply{found: h, source: control.SourceStore}
	}
	// A copy is in our own memory, better not held while grants are waited for.
	h.buf.Release()
	p.cfg.Residents.settle() // a grant may have begun to wait meanwhile
	return supply{read: true}
}

// wants asks the resolver for items; stored says that the Store has just said that it has them.
func (p *Prefill) wants(items []control.PrepareItem, which []int, stored bool) []resolve.Item {
	wants := make([]resolve.Item, len(which))
	for n, i := range which {
		wants[n] = resolve.Item{Key: items[i].Key, Contract: p.contract(&items[i]), Bytes: items[i].Bytes, Stored: stored}
	}
	return wants
}

// maxClaims is how often a claim is made before residents are left out of it: those that it counted on
// may have to make room for it.
const maxClaims = 3

// claim has memory granted for what nothing supplies, and pins the residents. What is resident counts when
// the request is at the head of the line, and it keeps that place until it has everything: what was there when
// it came has mostly left by then.
func (p *Prefill) claim(ctx context.Context, items []control.PrepareItem, stored []bool, out []supply) error {
	if len(p.lacking(items, stored, out, false)) == 0 && p.pin(items, stored, out) {
		return nil
	}
	p.unclaim(out)
	turn, err := p.cfg.Receiver.Turn(ctx)
	if err != nil {
		return p.noMemory(err)
	}
	defer turn.Leave()
	defer p.cfg.Residents.forgive() // before the next one has its turn, and debts of its own
	for try := 1; ; try++ {
		if err := p.grant(ctx, turn, items, p.lacking(items, stored, out, try == maxClaims), out); err != nil {
			return err
		}
		if p.pin(items, stored, out) {
			return nil
		}
		p.unclaim(out)
	}
}

// lacking returns the items that nothing supplies; all leaves residents out of account.
func (p *Prefill) lacking(items []control.PrepareItem, stored []bool, out []supply, all bool) (need []int) {
	for i := range items {
		if out[i].open() && !stored[i] && (all || !p.resident(&items[i])) {
			need = append(need, i)
		}
	}
	return need
}

// unclaim gives grants and pins back. Loans of the Store stay: they are no memory of ours.
func (p *Prefill) unclaim(out []supply) {
	for i := range out {
		if out[i].ticket != nil || out[i].source == control.SourceResident || out[i].read {
			out[i].cancel()
			out[i] = supply{read: out[i].read}
		}
	}
	p.cfg.Residents.settle()
}

// pin takes hold of residents and says whether nothing is left open but what the Store has.
func (p *Prefill) pin(items []control.PrepareItem, stored []bool, out []supply) bool {
	for i := range items {
		if !out[i].open() || stored[i] {
			continue
		}
		h, ok := p.cfg.Residents.pin(&items[i], p.contract(&items[i]))
		if !ok {
			return false
		}
		out[i].found, out[i].source = h, control.SourceResident
		if out[i].read {
			out[i].source = control.SourceStore
		}
	}
	return true
}

// errNoSize: an embedding is nowhere, and without its size no memory can be granted for it.
func errNoSize(i int) error {
	return openai.Unavailable(retryAfter, "image %d is not in the Store, and no Encoder is there to say what it takes", i)
}

// distrust removes an object from the Store whose payload is not what its head says: a repaired one of the
// same key would not take its place.
func (p *Prefill) distrust(k embedding.Key, err error) {
	p.cfg.Logger.Warn("wrong embedding", "key", k, "err", err)
	if p.cfg.Store == nil {
		return
	}
	p.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		if err := p.cfg.Store.Remove(ctx, []embedding.Key{k}); err != nil {
			p.cfg.Logger.Warn("a wrong embedding stays in the Store", "key", k, "err", err)
		}
	})
}
