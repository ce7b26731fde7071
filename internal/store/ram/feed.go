// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"encoding/binary"
	"io"
	"sync"

	"afterimage/internal/embedding"
	"afterimage/internal/store"
)

// feedDepth is how many events a subscriber may lag behind before it has to resync.
const feedDepth = 1024

// feed hands out events to subscribers. Publishing never waits: a subscriber that lags loses events
// and is told so by one Resync.
type feed struct {
	mu   sync.Mutex // guards the fields below; acquired after shelf.mu
	seq  uint64
	subs map[*subscription]struct{}
}

// subscription is one subscriber's queue.
type subscription struct {
	events chan store.Event
	lost   bool // guarded by feed.mu
}

func newFeed() *feed { return &feed{subs: make(map[*subscription]struct{})} }

// publish numbers an event and queues it for everyone. It is called with shelf.mu held, so numbers
// are in the order in which things happened.
func (f *feed) publish(kind store.EventKind, k embedding.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	for s := range f.subs {
		s.offer(store.Event{Kind: kind, Key: k, Seq: f.seq})
	}
}

// offer queues e. The last place of the queue is kept for a Resync.
func (s *subscription) offer(e store.Event) {
	switch {
	case len(s.events) < cap(s.events)-1:
		s.lost = false
	case s.lost:
		return
	default:
		s.lost = true
		e = store.Event{Kind: store.Resync, Seq: e.Seq}
	}
	s.events <- e
}

// subscribe starts a queue; its first event is a Resync, so that a subscriber begins from nothing.
func (f *feed) subscribe() *subscription {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &subscription{events: make(chan store.Event, feedDepth)}
	s.offer(store.Event{Kind: store.Resync, Seq: f.seq})
	f.subs[s] = struct{}{}
	return s
}

func (f *feed) unsubscribe(s *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.subs, s)
}

// subscribe turns the connection into a stream of events. The client sends nothing more; a read that
// returns says that it is gone.
func (s *session) subscribe(h head) error {
	sub := s.srv.shelf.feed.subscribe()
	defer s.srv.shelf.feed.unsubscribe(sub)
	if err := s.write(head{op: opSubscribe, request: h.request}.append(s.out[:0])); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.r.ReadByte()
	}()
	defer func() {
		s.nc.Close()
		<-gone
	}()
	for {
		select {
		case <-gone:
			return io.EOF
		case e := <-sub.events:
			if err := s.write(appendEvent(s.out[:0], h.request, e)); err != nil {
				return err
			}
		}
	}
}

func appendEvent(b []byte, request uint64, e store.Event) []byte {
	b = head{op: opEvent, request: request, body: eventBytes + len(e.Key)}.append(b)
	b = binary.LittleEndian.AppendUint64(b, e.Seq)
	b = append(b, eventCode(e.Kind), 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(e.Key)))
	return append(b, e.Key...)
}
