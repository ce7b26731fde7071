// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"afterimage/internal/arena"
	"afterimage/internal/embedding"
	"afterimage/internal/fdpass"
	"afterimage/internal/store"
)

// rawLink makes a link by hand and returns it with its number.
func rawLink(t *testing.T, path string, a *arena.Arena) (*rawConn, uint64) {
	t.Helper()
	r := rawDial(t, path)
	ask := ask{flags: flagLink, memory: uint64(a.Stats().Capacity)}
	f, err := a.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := fdpass.Write(r.Conn, ask.append(head{op: opHello, body: askBytes}.append(nil)), f); err != nil {
		t.Fatal(err)
	}
	_, body := r.recv()
	g, err := parseGreeting(body)
	if err != nil || g.flags&flagLink == 0 {
		t.Fatalf("no link: %+v, %v", g, err)
	}
	return r, g.link
}

// rawLane joins a link by hand.
func rawLane(t *testing.T, path string, link, lane uint64) *rawConn {
	t.Helper()
	r := rawDial(t, path)
	r.send(head{op: opHello}, ask{link: link, lane: lane}.append(nil)...)
	_, body := r.recv()
	if g, err := parseGreeting(body); err != nil || g.flags&flagLink == 0 {
		t.Fatalf("lane %d did not join: %+v, %v", lane, g, err)
	}
	return r
}

// rawLend asks for one object by loan and returns the loan's number, or 0.
func rawLend(r *rawConn, request uint64, k embedding.Key, n int) uint64 {
	r.Helper()
	r.send(head{op: opLend, count: 1, request: request}, appendWants(nil, []store.Want{{Key: k, Bytes: n}})...)
	_, body := r.recv()
	if status(body[0]) != statusLent {
		return 0
	}
	return binary.LittleEndian.Uint64(body[24:])
}

func numbers(vs ...uint64) (b []byte) {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// T12: whatever a client says on its link, the Store keeps the loans until the client is gone, and
// serves the others.
func TestHostileLink(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(4 * mib)
	mustPut(t, c, a, "k", mib, 1)
	n := uint64(0)
	f := func(name string, h head, body ...byte) {
		t.Helper()
		link, id := rawLink(t, l.path, a)
		lane := rawLane(t, l.path, id, 1)
		loan := rawLend(lane, 1, "k", mib)
		link.send(h, body...)
		n++
		eventually(t, name+" is noticed", func() bool { return l.srv.Stats().Malformed == n })
		link.Write(numbers(1, 2, 3)) // ignored
		link.send(head{op: opReturn, count: 1}, numbers(loan)...)
		if got := l.srv.Stats().Loans; got != 1 {
			t.Errorf("%s: %d loans, want the client's to stay", name, got)
		}
		link.Close()
		l.settled()
	}
	f("return without numbers", head{op: opReturn, count: 2}, numbers(1)...)
	f("return of more than it says", head{op: opReturn}, numbers(1)...)
	f("half a lane end", head{op: opLaneEnd, count: 1}, numbers(1)...)
	f("a call", head{op: opExists, count: 1}, 1, 0, 'k')
	f("a recall", head{op: opRecall, count: 1}, numbers(1)...)
	f("unknown op", head{op: 99})
	if b := borrow(t, c, "k"); !all(b, 1) {
		t.Error("another client's loan is wrong")
	} else {
		b.Release()
	}
}

// Numbers that are not one's own return nobody's loan.
func TestForeignLoanNumbers(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(4 * mib)
	mustPut(t, c, a, "k", mib, 1)
	b := borrow(t, c, "k")
	link, _ := rawLink(t, l.path, a)
	var some []uint64
	for i := range uint64(100) {
		some = append(some, i)
	}
	link.send(head{op: opReturn, count: len(some)}, numbers(some...)...)
	link.send(head{op: opReturn, count: 2}, numbers(math.MaxUint64, 0)...)
	link.send(head{op: opLaneEnd, count: 2}, numbers(1, 1, math.MaxUint64, 3)...)
	link.send(head{op: 99}) // all before it was read when this is noticed
	eventually(t, "the last frame", func() bool { return l.srv.Stats().Malformed == 1 })
	if st := l.srv.Stats(); st.Loans != 1 || !all(b, 1) {
		t.Errorf("%+v, want the one loan to stay", st)
	}
	b.Release()
	l.settled()
}

// A lane that its client closed before the request was read lends nothing, and one that was closed
// before the answer arrived gives back what it was lent; both in any order of link and lane.
func TestLaneEndReturnsWhatWasNotReceived(t *testing.T) {
	l := newLending(t, 8*mib)
	c, a := l.client(4 * mib)
	mustPut(t, c, a, "k", mib, 1)
	link, id := rawLink(t, l.path, a)

	lane := rawLane(t, l.path, id, 1)
	kept := rawLend(lane, 10, "k", mib) // received
	rawLend(lane, 11, "k", mib)         // not received, says the link
	lane.Close()
	link.send(head{op: opLaneEnd, count: 1}, numbers(1, 11)...)
	eventually(t, "return of one loan", func() bool { return l.srv.Stats().Loans == 1 })

	early := rawLane(t, l.path, id, 2)
	link.send(head{op: opLaneEnd, count: 1}, numbers(2, 12)...)
	eventually(t, "the lane's end", func() bool {
		l.srv.shelf.mu.Lock()
		defer l.srv.shelf.mu.Unlock()
		ln := l.srv.borrowerOf(id).lanes[2]
		return ln != nil && ln.dead
	})
	early.send(head{op: opLend, count: 1, request: 12}, appendWants(nil, []store.Want{{Key: "k", Bytes: mib}})...)
	if out, _ := io.ReadAll(early); len(out) != 0 {
		t.Errorf("a dead lane was answered with %d bytes", len(out))
	}
	if st := l.srv.Stats(); st.Loans != 1 {
		t.Errorf("%d loans, want the one that was received", st.Loans)
	}
	eventually(t, "both lanes forgotten", func() bool {
		l.srv.shelf.mu.Lock()
		defer l.srv.shelf.mu.Unlock()
		return len(l.srv.borrowerOf(id).lanes) == 0
	})
	link.send(head{op: opReturn, count: 1}, numbers(kept)...)
	l.settled()
}

// Offsets of PUTs are hostile, too.
func TestTakeOfHostileRange(t *testing.T) {
	l := newLending(t, 8*mib)
	a := newMapped(t, mib)
	_, id := rawLink(t, l.path, a)
	n := uint64(0)
	for i, r := range [][2]uint64{{mib, 64}, {mib - 63, 64}, {0, mib + 1}, {math.MaxUint64, 64}, {1 << 63, 64}, {0, 0}, {0, math.MaxUint64}} {
		lane := rawLane(t, l.path, id, uint64(i+1))
		lane.send(head{op: opTake}, append(numbers(r[0]), reserveBody("k", r[1])...)...)
		if h, _ := lane.recv(); h.status != statusMalformed {
			t.Errorf("%d bytes at %d: status %d, want malformed", r[1], r[0], h.status)
		}
		if n++; l.srv.Stats().Malformed != n {
			t.Errorf("%d bytes at %d: not counted", r[1], r[0])
		}
	}
	// So are bodies that are cut short, or go on behind their key.
	good := append(numbers(0), reserveBody("k", 64)...)
	for i, body := range [][]byte{nil, good[:5], good[:len(good)-1], append(bytes.Clone(good), 0)} {
		lane := rawLane(t, l.path, id, uint64(i+100))
		lane.send(head{op: opTake}, body...)
		if h, _ := lane.recv(); h.status != statusMalformed {
			t.Errorf("body of %d bytes, want %d: status %d, want malformed", len(body), len(good), h.status)
		}
	}
	// Without a link there is no memory to take from.
	r := rawDial(t, l.path).hello()
	r.send(head{op: opTake}, append(numbers(0), reserveBody("k", 64)...)...)
	if h, _ := r.recv(); h.status != statusMalformed {
		t.Errorf("take without a link: status %d", h.status)
	}
	l.settled()
}

// A link number is needed to borrow, and cannot be guessed; a lane has one number.
func TestJoinOfAStranger(t *testing.T) {
	l := newLending(t, mib)
	_, id := rawLink(t, l.path, newMapped(t, mib))
	rawLane(t, l.path, id, 1)
	for _, a := range []ask{{link: id + 1, lane: 1}, {link: id, lane: 1}} {
		r := rawDial(t, l.path)
		r.send(head{op: opHello}, a.append(nil)...)
		_, body := r.recv()
		if g, err := parseGreeting(body); err != nil || g.flags != 0 {
			t.Errorf("%+v joined: %+v, %v", a, g, err)
		}
		r.send(head{op: opLend, count: 1}, appendWants(nil, []store.Want{{Key: "k", Bytes: 1}})...)
		if h, _ := r.recv(); h.status != statusMalformed {
			t.Errorf("a stranger was lent something: status %d", h.status)
		}
	}
}

// A hello that shows no memory, or what is not memory, makes a link that streams PUTs.
func TestLinkWithoutMemory(t *testing.T) {
	l := newLending(t, mib)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, files := range map[string][]*os.File{"none": nil, "no memory": {null}, "two": {null, null}} {
		r := rawDial(t, l.path)
		a := ask{flags: flagLink, memory: mib}
		if err := fdpass.Write(r.Conn, a.append(head{op: opHello, body: askBytes}.append(nil)), files...); err != nil {
			t.Fatal(err)
		}
		_, body := r.recv()
		if g, err := parseGreeting(body); err != nil || g.flags != flagLink {
			t.Errorf("%s: %+v, %v; want a link without memory", name, g, err)
		}
	}
}

// A Store that lends what is not there gives its client an error, and nobody foreign bytes.
func TestLyingLender(t *testing.T) {
	for name, offer := range map[string][]uint64{
		"beyond the end":  {uint64(statusLent), 64, mib, 1},
		"across the end":  {uint64(statusLent), 64, mib - 32, 1},
		"absurd offset":   {uint64(statusLent), 64, math.MaxUint64, 1},
		"more than asked": {uint64(statusLent), 65, 0, 1},
		"empty":           {uint64(statusLent), 0, 0, 1},
		"unknown status":  {77, 64, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			path, mem := socket(t), newMapped(t, mib)
			ln, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				lieTo(t, ln, mem, offer)
			}()
			a := newMapped(t, mib)
			c := dial(t, ClientConfig{Path: path, Arena: a})
			gots := c.Get(t.Context(), []store.Want{{Key: "a", Bytes: 64}, {Key: "b", Bytes: 64}})
			for i, g := range gots {
				if g.Err == nil {
					t.Errorf("item %d: %d bytes", i, g.Buf.Len())
					g.Buf.Release()
				}
			}
			if st := c.Stats(); st.Loans != 0 {
				t.Errorf("%+v, want no loan left", st)
			}
			c.Close()
			ln.Close()
			<-done
		})
	}
}

// lieTo serves links and lanes of one client: the first item of a GET is sound, the second an offer
// that is not.
func lieTo(t *testing.T, ln net.Listener, mem *arena.Arena, offer []uint64) {
	var sessions sync.WaitGroup
	defer sessions.Wait()
	for {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		sessions.Go(func() {
			defer nc.Close()
			nc.SetDeadline(time.Now().Add(10 * time.Second))
			src := &source{nc: nc}
			defer func() { fdpass.CloseAll(src.files) }()
			in := frames{r: src}
			for {
				h, body, err := in.next()
				if err != nil {
					return
				}
				switch h.op {
				case opHello:
					a, _ := parseAsk(body)
					g := greeting{flags: flagLink, epoch: 1, link: 1, memory: mem.Stats().Capacity, sketch: mem.Stats().Capacity}
					var files []*os.File
					if a.flags&flagLink != 0 {
						for range 3 {
							f, err := mem.Share()
							if err != nil {
								t.Error(err)
								return
							}
							defer f.Close()
							files = append(files, f)
						}
					}
					fdpass.Write(nc, g.append(head{op: opHello, request: h.request, body: helloBytes}.append(nil)), files...)
				case opLend:
					good := numbers(uint64(statusLent), 64, 64, 9)
					nc.Write(append(append(head{op: opLend, request: h.request, count: 2, body: 2 * offerBytes}.append(nil), good...), numbers(offer...)...))
				}
			}
		})
	}
}
