// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"sync"
)

// blockIDs is how many transfer ids make a block. The file is written once per block, and a successor cancels all of
// those of the last ones: 1024 took a consumer 0.2 s.
const blockIDs = 1024

// ID is a transfer id.
type ID struct {
	Text string // 32 hex digits, as vLLM's proxy has them
	n    uint64
}

// ids makes transfer ids, and writes down which may be in use before they are.
type ids struct {
	file *stateFile

	mu    sync.Mutex // guards what follows
	state *state     // as it is in the file
	next  uint64
	used  map[uint64]int // ids in use, by block
}

// newIDs continues from s, whose epoch is this process's.
func newIDs(file *stateFile, s *state) *ids {
	return &ids{file: file, state: s, used: map[uint64]int{}}
}

// idAt is id n of an epoch.
func (s *state) idAt(epoch, n uint64) string {
	h := hmac.New(sha256.New, s.Secret)
	h.Write([]byte("afterimage transfer\x00" + s.Gateway))
	h.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, epoch), n))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// take returns a fresh id for a transfer to a consumer. It fails if it cannot be written down that it is in use.
func (d *ids) take(consumer string) (ID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.next
	block := n / blockIDs
	own := slices.IndexFunc(d.state.Open, func(o openBlocks) bool { return o.Epoch == d.state.Epoch })
	if own < 0 || d.state.Open[own].To < block || !slices.Contains(d.state.Open[own].Consumers, consumer) {
		if err := d.openLocked(own, block, consumer); err != nil {
			return ID{}, err
		}
	}
	d.next++
	d.used[block]++
	return ID{Text: d.state.idAt(d.state.Epoch, n), n: n}, nil
}

// openLocked writes down that ids of block are in use at a consumer.
func (d *ids) openLocked(own int, block uint64, consumer string) error {
	next := *d.state
	next.Open = slices.Clone(next.Open)
	o := openBlocks{Epoch: next.Epoch, From: block}
	if own >= 0 {
		o = next.Open[own]
		next.Open = slices.Delete(next.Open, own, own+1)
	}
	o.From, o.To = block, block
	for b := range d.used {
		o.From = min(o.From, b)
	}
	if !slices.Contains(o.Consumers, consumer) {
		o.Consumers = append(slices.Clone(o.Consumers), consumer)
	}
	next.Open = append(next.Open, o)
	if err := d.file.write(&next); err != nil {
		return err
	}
	d.state = &next
	return nil
}

// done says that nothing of a transfer is left that somebody would have to abandon.
func (d *ids) done(id ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	block := id.n / blockIDs
	if d.used[block]--; d.used[block] == 0 {
		delete(d.used, block)
	}
}

// update changes what the file holds.
func (d *ids) update(change func(*state)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := *d.state
	next.Open = slices.Clone(next.Open)
	change(&next)
	if err := d.file.write(&next); err != nil {
		return err
	}
	d.state = &next
	return nil
}

// left is what an earlier process may have left at consumers.
type left struct {
	epoch     uint64
	consumers []string
	transfers []string
}

// predecessors returns what earlier processes may have left.
func (d *ids) predecessors() []left {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []left
	for _, o := range d.state.Open {
		if o.Epoch == d.state.Epoch {
			continue
		}
		l := left{epoch: o.Epoch, consumers: o.Consumers}
		for n := o.From * blockIDs; n < (o.To+1)*blockIDs; n++ {
			l.transfers = append(l.transfers, d.state.idAt(o.Epoch, n))
		}
		out = append(out, l)
	}
	return out
}

// settled says that a consumer was told of what an earlier process left.
func (d *ids) settled(epoch uint64, consumer string) error {
	return d.update(func(s *state) {
		for i := range s.Open {
			if o := &s.Open[i]; o.Epoch == epoch {
				o.Consumers = slices.DeleteFunc(slices.Clone(o.Consumers), func(c string) bool { return c == consumer })
			}
		}
		s.Open = slices.DeleteFunc(s.Open, func(o openBlocks) bool { return len(o.Consumers) == 0 })
	})
}

// close gives the file up. With nothing in use, a successor finds nothing left of this process.
func (d *ids) close() error {
	d.mu.Lock()
	clean := len(d.used) == 0
	d.mu.Unlock()
	if clean {
		_ = d.update(func(s *state) { // else a successor cancels what is not there
			s.Open = slices.DeleteFunc(s.Open, func(o openBlocks) bool { return o.Epoch == s.Epoch })
		})
	}
	return d.file.close()
}
