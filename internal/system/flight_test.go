// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"afterimage/internal/client"
	"afterimage/internal/control"
)

// burst asks about one picture from n connections at once, over the gateways in turn, and checks the answers.
func burst(t *testing.T, n int, file []byte, gateways ...*fleet) {
	t.Helper()
	want := reference(t, nil, turn{file, "what?"})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			g := gateways[i%len(gateways)]
			own := &client.Client{Base: g.gateway.URL, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
			a, err := own.Ask(t.Context(), question(file), nil)
			if err != nil || a.Text != want {
				t.Errorf("request %d: %q, %v; want %q", i, a.Text, err, want)
			}
		})
	}
	wg.Wait()
}

// holdEncodes counts encode calls at all Encoders, and holds them there until release.
func (f *fleet) holdEncodes() (count *atomic.Int64, release func()) {
	count, gate := new(atomic.Int64), make(chan struct{})
	for _, e := range f.encoders {
		e.fail(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == control.PathEncode {
				count.Add(1)
				select {
				case <-gate:
				case <-r.Context().Done():
				}
			}
			return false
		})
	}
	return count, sync.OnceFunc(func() { close(gate) })
}

// TestBurstOverTwoGateways (F02): one picture over many connections and two gateways is encoded once, and its
// file travels once per gateway; in either mode, and where Encoders keep nothing.
func TestBurstOverTwoGateways(t *testing.T) {
	for name, change := range map[string]func(*options){
		"direct":                 func(*options) {},
		"p2p":                    func(o *options) { o.p2p, o.residents = true, 0 },
		"Encoders without cache": func(o *options) { o.p2p, o.residents, o.encoderCache = true, 0, -1 },
		"four Encoders":          func(o *options) { o.encoders = 4 },
	} {
		f := newFleet(t, func(o *options) { o.encodeTime = 500 * time.Millisecond; change(o) }) // long enough for the calls of both gateways to meet
		g := f.secondGateway(t, nil)
		f.ask(t, "", picture(t, 60, 61, 8)) // sizes are known, so that all requests come together
		const n = 20
		before := f.encodes(t)
		came := func(source string) float64 {
			const items = "afterimage_gateway_items_total"
			return f.gateway.count(t, items, source) + g.gateway.count(t, items, source)
		}
		all, encoded, joined := came(""), came("encoded"), came("joined")
		files, release := f.holdEncodes()
		defer release()
		ended := make(chan struct{})
		go func() { defer close(ended); burst(t, n, picture(t, 60, 61, 9), f, g) }()
		eventually(t, name+": all but the first at each gateway have joined", func() bool {
			return f.gateway.count(t, "afterimage_gateway_joined_total", "")+g.gateway.count(t, "afterimage_gateway_joined_total", "") == n-2
		})
		release()
		<-ended
		if n := f.encodes(t) - before; n != 1 {
			t.Errorf("%s: %v encodes of one picture", name, n)
		}
		// One was encoded for its own request; the others say that they joined, or found it there a little later. An answer
		// waits 250 ms for the report of its Encoder; on a machine that is busy beyond that, an item says nothing.
		if all, encoded, joined := came("")-all, came("encoded")-encoded, came("joined")-joined; all > n || encoded > 1 || joined < 1 {
			t.Errorf("%s: %v items, of which %v say encoded and %v joined", name, all, encoded, joined)
		}
		if n := files.Load(); n != 2 {
			t.Errorf("%s: the file travelled %d times through 2 gateways", name, n)
		}
		eventually(t, "the memory is back", f.free)
	}
}

// TestFirstCallerLeaves (T10): a flight outlives the request that started it; when all have left, it ends.
func TestFirstCallerLeaves(t *testing.T) {
	f := newFleet(t, func(o *options) { o.encodeTime = 200 * time.Millisecond })
	file := picture(t, 60, 60, 3)
	arrived := make(chan struct{}, 8)
	for _, e := range f.encoders {
		e.fail(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == control.PathEncode || r.URL.Path == control.PathDeliver {
				arrived <- struct{}{}
			}
			return false
		})
	}
	ctx, leave := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := f.client.Ask(ctx, question(file), nil)
		first <- err
	}()
	<-arrived
	second := make(chan struct{})
	go func() { defer close(second); burst(t, 2, file, f) }()
	<-arrived
	<-arrived
	leave()
	if err := <-first; err == nil {
		t.Error("the first caller did not leave")
	}
	<-second
	if n := f.encodes(t); n != 1 {
		t.Errorf("%v encodes, want 1", n)
	}
	eventually(t, "the memory is back", f.free)
}

// TestFirstCallerLeavesEarly (T10): the call outlives its caller also before any engine has begun with it.
func TestFirstCallerLeavesEarly(t *testing.T) {
	f := newFleet(t, nil)
	file := picture(t, 60, 60, 5)
	files, release := f.holdEncodes()
	defer release()
	left := make(chan struct{}, 8)
	f.prefill.fail(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			left <- struct{}{}
		}
		return false
	})
	ctx, leave := context.WithCancel(t.Context())
	go f.client.Ask(ctx, question(file), nil)
	eventually(t, "the first has called", func() bool { return files.Load() == 1 })
	others := make(chan struct{})
	go func() { defer close(others); burst(t, 2, file, f) }()
	eventually(t, "the others have joined", func() bool { return f.gateway.count(t, "afterimage_gateway_joined_total", "") == 2 })
	leave()
	<-left       // the gateway has noticed
	f.ask(t, "") // and an Encoder would have by the time of an answer
	release()
	<-others
	if n := files.Load(); n != 1 {
		t.Errorf("the file travelled %d times", n)
	}
	eventually(t, "the memory is back", f.free)
}

// TestOneErrorOneRetry (T10): when the encode that ten requests wait for fails, one of them tries again, and
// the others wait for that; a fleet that fails for good is asked once per repair, not once per request.
func TestOneErrorOneRetry(t *testing.T) {
	const broken = `{"encoder":"x","items":[{"error":{"status":503,"type":"x","message":"engine lost"}}]}`
	f := newFleet(t, nil)
	// fail has encode calls of ten requests fail, the first once the others have joined it.
	fail := func(times int64, ten func()) int64 {
		var calls atomic.Int64
		first, joined := make(chan struct{}), f.gateway.count(t, "afterimage_gateway_joined_total", "")
		for _, e := range f.encoders {
			e.fail(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != control.PathEncode {
					return false
				}
				n := calls.Add(1)
				if n > times {
					return false
				}
				readAll(r.Body)
				if n == 1 {
					select {
					case <-first:
					case <-r.Context().Done():
					}
				} else {
					time.Sleep(100 * time.Millisecond) // an engine that fails takes its time; the others wait again meanwhile
				}
				answers(200, broken)(w, r)
				return true
			})
		}
		ended := make(chan struct{})
		go func() { defer close(ended); ten() }()
		eventually(t, "the others have joined", func() bool { return f.gateway.count(t, "afterimage_gateway_joined_total", "") == joined+9 })
		close(first)
		<-ended
		return calls.Load()
	}
	f.ask(t, "", picture(t, 60, 60, 4))
	if n := fail(1, func() { burst(t, 10, picture(t, 60, 60, 5), f) }); n != 2 {
		t.Errorf("%d encode calls after one error, want 2", n)
	}
	n := fail(1<<30, func() {
		file := picture(t, 60, 60, 6)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if status, header, body := f.post(t, nil, user(img(file))); status != 503 || header.Get("Retry-After") == "" {
					t.Errorf("%d %s", status, body)
				}
			})
		}
		wg.Wait()
	})
	if n > 3 {
		t.Errorf("%d encode calls of 10 requests for a picture that cannot be encoded, want 3 at most", n)
	}
	eventually(t, "the memory is back", f.free)
}

// TestMissedByAll: when a P/D loses what ten requests share, they have it encoded afresh once.
func TestMissedByAll(t *testing.T) {
	f := newFleet(t, func(o *options) { o.encodeTime = 50 * time.Millisecond })
	f.ask(t, "", picture(t, 60, 60, 6))
	before := f.encodes(t)
	var lost sync.Map // names of requests
	f.prefill.fail(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != control.PathChat {
			return false
		}
		if _, again := lost.LoadOrStore(r.Header.Get(control.HeaderRequestID), true); again {
			return false
		}
		readAll(r.Body)
		answers(409, `{"missing":[0]}`)(w, r)
		return true
	})
	burst(t, 10, picture(t, 60, 60, 7), f)
	if n := f.encodes(t) - before; n > 2 {
		t.Errorf("%v encodes, want the first and one repair", n)
	}
}

// TestBurstAcrossAMembershipChange: while gateways send an image elsewhere, since its Encoder drains, it is
// encoded once per Encoder at most.
func TestBurstAcrossAMembershipChange(t *testing.T) {
	f := newFleet(t, func(o *options) { o.encodeTime = 400 * time.Millisecond })
	g := f.secondGateway(t, nil)
	f.ask(t, "", picture(t, 60, 61, 8))
	g.ask(t, "", picture(t, 60, 61, 8))
	before := f.encodes(t)
	file := picture(t, 60, 61, 9)
	var waves sync.WaitGroup
	waves.Go(func() { burst(t, 3, file, f) })
	first := -1
	eventually(t, "it is in an engine", func() bool {
		for i, e := range f.encoders {
			if e.announcement(t).Running == 1 {
				first = i
			}
		}
		return first >= 0
	})
	f.encoders[first].announce(t, func(a *control.Announcement) { a.Ready, a.Reason = false, control.Draining })
	eventually(t, "both gateways have seen it", func() bool { return !f.allUp(t) && !g.allUp(t) })
	waves.Go(func() { burst(t, 12, file, f, g) })
	waves.Wait()
	if n := f.encodes(t) - before; n > 2 {
		t.Errorf("%v encodes on two Encoders", n)
	}
	eventually(t, "the memory is back", f.free)
}

// TestSlowConsumerHoldsNobody: an Encoder sends one embedding to all grants at once, so that a P/D that takes the
// connection and says nothing keeps it from no other.
func TestSlowConsumerHoldsNobody(t *testing.T) {
	f := newFleet(t, func(o *options) { o.encoders = 1 })
	file := picture(t, 60, 60, 4)
	bytes := f.ask(t, "", file).Items[0].Bytes
	it := control.EncodeItem{Identifier: "i", Bytes: len(file)}
	var mute []net.Listener
	for i := range 2 {
		l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
		defer l.Close()
		mute = append(mute, l)
		it.Grants = append(it.Grants, control.Grant{Address: l.Addr().String(), Transfer: fmt.Sprintf("%032x", i+1), Attempt: 1, Generation: 1, Bytes: bytes})
	}
	both := make(chan struct{})
	go func() {
		defer close(both)
		var held []net.Conn
		for _, l := range mute {
			if c, err := l.Accept(); err == nil {
				held = append(held, c)
			}
		}
		for _, l := range mute {
			l.Close() // nobody is there for a second try
		}
		for _, c := range held {
			c.Close()
		}
	}()
	resp := f.postEncode(t, control.EncodeRequest{Request: "r", Items: []control.EncodeItem{it}}, file)
	defer resp.Body.Close()
	var out control.EncodeResponse
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || len(out.Items) != 1 || out.Items[0].Error == nil {
		t.Fatalf("%s: %+v, %v", resp.Status, out, err)
	}
	// Had one waited for the other, that would have ended with the time for its hello.
	if m := out.Items[0].Error.Message; strings.Contains(m, "timeout") {
		t.Errorf("a grant waited for another: %s", m)
	}
	<-both
}
