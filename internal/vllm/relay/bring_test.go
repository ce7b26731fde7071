// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"afterimage/internal/embedding"
)

// one brings one picture and returns what became of it. The batch has ended.
func (r *rig) one(t *testing.T, p Picture) Brought {
	t.Helper()
	b := r.Bring(t.Context(), r.consumer.Address(), []Picture{p})
	defer b.End(true)
	return b.Items[0]
}

// TestBring: what an Encoder has shown once is brought from then on, also for pictures that nobody here has seen; the
// bytes are sent from where they were read to.
func TestBring(t *testing.T) {
	r := newRig(t)
	first, other := picture(0, 224, 224), picture(7, 224, 224)
	rows := small.patches() / merge
	r.store.set(key(first), object(rows, cols, 12, 0x11))
	r.store.set(key(other), object(rows, cols, 12, 0x22))
	if got := r.one(t, first); got.Result != Unknown || r.store.asked() != 0 {
		t.Errorf("before anything is known: %+v, %d reads", got, r.store.asked())
	}
	r.Learn(first, first.UUID, small)
	if got := r.one(t, other); got.Result != Unknown {
		t.Errorf("an object that no worker has taken teaches its rows: %+v", got)
	}
	for _, p := range []Picture{first, other} {
		got := r.one(t, p)
		if got.Result != Written || got.Hash != p.UUID || got.Grid != small {
			t.Errorf("got %+v", got)
		}
		want := r.store.get(key(p))[embedding.HeaderBytesV3:]
		for _, s := range r.consumer.Shards {
			if !bytes.Equal(s.Ready(got.Transfer), want) {
				t.Error("other values than the Store's")
			}
		}
	}
	if got := r.one(t, picture(8, 224, 224)); got.Result != Absent {
		t.Errorf("a picture that the Store does not have: %+v", got)
	}
	if got := r.one(t, picture(7, 225, 224)); got.Result != Unknown {
		t.Errorf("a size that no Encoder has seen: %+v", got)
	}
}

// TestNoCopy: what goes to the consumer is the memory that the Store read into.
func TestNoCopy(t *testing.T) {
	r := newRig(t)
	r.taught(t)
	r.recent.drop(picture(0, 224, 224).UUID)
	w := wanted(namespace, r.learned.era, picture(0, 224, 224).UUID, small)
	o := r.reader.get(t.Context(), []want{w})[0]
	defer r.reader.giveBack(o)
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	for _, lent := range r.store.lent {
		if len(lent) > sumBytes && &lent[embedding.HeaderBytesV3] == &o.payload()[0] {
			return
		}
	}
	t.Error("the payload is none of the memory that was read into")
}

// TestDuplicates: equal images are one delivery.
func TestDuplicates(t *testing.T) {
	r := newRig(t)
	r.taught(t)
	a, b := picture(2, 224, 224), picture(3, 336, 224)
	r.store.set(key(a), object(small.patches()/merge, cols, 12, 1))
	r.store.set(key(b), object(wide.patches()/merge, cols, 12, 2))
	batch := r.Bring(t.Context(), r.consumer.Address(), []Picture{a, b, a, picture(4, 224, 224)})
	got := batch.Items
	if got[0].Transfer == "" || got[0] != got[2] || got[1].Transfer == got[0].Transfer || got[1].Result != Written || got[3].Result != Absent || got[3].Transfer != "" {
		t.Errorf("got %+v", got)
	}
	batch.End(false)
	r.empty(t)
}

// TestResident: what the consumer still has is not read again; what it has dropped is.
func TestResident(t *testing.T) {
	r := newRig(t)
	r.taught(t)
	p := picture(0, 224, 224)
	got := r.one(t, p)
	for _, s := range r.consumer.Shards {
		s.Use(got.Transfer)
	}
	asked := r.store.asked()
	if got := r.one(t, p); got.Result != Resident || r.store.asked() != asked {
		t.Errorf("got %+v after %d reads", got, r.store.asked()-asked)
	}
	r.store.mu.Lock()
	delete(r.store.objects, key(p)) // the worker has it, the Store no longer
	r.store.mu.Unlock()
	last := r.one(t, p)
	if last.Result != Resident {
		t.Errorf("got %+v", last)
	}
	for _, s := range r.consumer.Shards {
		for _, id := range []string{last.Transfer} {
			s.Use(id)
		}
		s.Expire()
		s.Evict()
	}
	if got := r.one(t, p); got.Result != Absent {
		t.Errorf("neither has it: got %+v", got)
	}
	r.empty(t)
}

// TestShared: requests for one object at the same time share a read.
func TestShared(t *testing.T) {
	r := newRig(t)
	r.taught(t)
	p := picture(5, 224, 224)
	r.store.set(key(p), object(small.patches()/merge, cols, 12, 9))
	hold := make(chan struct{})
	r.store.mu.Lock()
	r.store.hold = hold
	r.store.mu.Unlock()
	asked := r.store.asked()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got := r.one(t, p); got.Transfer == "" {
				t.Errorf("got %+v", got)
			}
		})
	}
	waiting := func() int {
		r.reader.mu.Lock()
		defer r.reader.mu.Unlock()
		if o := r.reader.open[key(p)]; o != nil {
			return o.users
		}
		return 0
	}
	eventually(t, "all wait", func() bool { return waiting() == 8 })
	close(hold)
	all.Wait()
	if n := r.store.asked() - asked; n != 1 {
		t.Errorf("%d reads, want 1", n)
	}
}

// TestMany: a mixed load leaves nothing behind, and delivers no wrong byte.
func TestMany(t *testing.T) {
	r := newRig(t)
	r.taught(t)
	for n := 10; n < 14; n++ {
		r.store.set(key(picture(n, 224, 224)), object(small.patches()/merge, cols, 12, byte(n)))
	}
	var all sync.WaitGroup
	for w := range 6 {
		all.Go(func() {
			for i := range 20 {
				p := picture(10+(w+i)%5, 224, 224) // the last of them is absent
				b := r.Bring(t.Context(), r.consumer.Address(), []Picture{p})
				it := b.Items[0]
				if (it.Transfer == "") != (p.UUID == picture(14, 0, 0).UUID) {
					t.Errorf("%s: %+v", p.UUID, it)
				}
				if it.Transfer != "" {
					want := r.store.get(key(p))[embedding.HeaderBytesV3:]
					if got := r.consumer.Shards[i%2].Ready(it.Transfer); !bytes.Equal(got, want) {
						t.Errorf("%s: wrong values", p.UUID)
					}
				}
				b.End(false)
			}
		})
	}
	all.Wait()
	r.empty(t)
	if fmt.Sprint(r.store.arena.Stats().Reserved) != "0" {
		t.Error("memory is reserved after all has ended")
	}
}

// TestStudy: one picture that an Encoder has made is enough for others of its size, though it never comes again.
func TestStudy(t *testing.T) {
	r := newRig(t)
	r.lessons = []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second, 10 * time.Second}
	first, other := picture(0, 224, 224), picture(1, 224, 224)
	r.store.set(key(other), object(small.patches()/merge, cols, 12, 2))
	r.Learn(first, first.UUID, small)
	eventually(t, "it is asked for before the Encoder has published", func() bool { return r.store.asked() > 0 })
	r.store.set(key(first), object(small.patches()/merge, cols, 12, 1))
	eventually(t, "it is learned", func() bool { _, known := r.learned.known(); return known })
	if got := r.one(t, other); got.Result != Written {
		t.Errorf("got %+v", got)
	}
}

// TestLost: an embedding whose other writer gives up is written under another name.
func TestLost(t *testing.T) {
	r := newRig(t)
	r.taught(t)
	p := picture(0, 224, 224)
	for _, s := range r.consumer.Shards {
		s.Answer(fmt.Appendf(nil, `{"op":"reserve","transfer_id":"other","mm_hash":%q,"nbytes":%d,"shape":[64,%d],"dtype":"bfloat16"}`, p.UUID, 64*cols*2, cols))
	}
	polled := func(s int) bool {
		ops := r.consumer.Shards[s].Ops()
		return ops[len(ops)-1] == "status"
	}
	got := make(chan Brought)
	go func() { got <- r.one(t, p) }()
	eventually(t, "it waits for the other at both", func() bool { return polled(0) && polled(1) })
	for _, s := range r.consumer.Shards {
		s.Answer([]byte(`{"op":"cancel","transfer_id":"other","reservation_id":"","abandon":true}`))
	}
	if b := <-got; b.Result != Written {
		t.Errorf("got %+v", b)
	}
}
