// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"afterimage/internal/arena"
)

// recorded is the control channel of vLLM's consumer as it answered, with a pool of one object of 64
// bytes and a bit.
type recorded struct {
	Exchanges []struct{ Request, Response string }
	Events    []string
}

// consumer plays the same steps here. Its tickets have the names of the recorded transfers.
type consumer struct {
	*world
	p, q  *rawPeer // the senders of tz1 and tz2, which want the same object
	first map[string]*ticket
}

// counterpart is what stands here for one recorded exchange.
type counterpart struct {
	request string // how the recorded request begins
	answer  string // what of the recorded answer has a counterpart; it must occur there
	differs string // why ours is another, if it is
	step    func(c *consumer)
}

// TestControlGolden goes through the recorded exchanges in their order. For each there is a step here that
// has the same guarantee, or a reason.
func TestControlGolden(t *testing.T) {
	b, err := os.ReadFile("testdata/control.json")
	if err != nil {
		t.Fatal(err)
	}
	var rec recorded
	if err := json.Unmarshal(b, &rec); err != nil {
		t.Fatal(err)
	}
	inBubble(t, 2, func(w *world, p, q *rawPeer) {
		c := &consumer{world: w, p: p, q: q, first: map[string]*ticket{}}
		for i, x := range rec.Exchanges {
			if i >= len(counterparts) {
				t.Fatalf("exchange %d, %s, has no counterpart", i, x.Request)
			}
			cp := counterparts[i]
			if !strings.HasPrefix(strings.NewReplacer(`"`, "", " ", "").Replace(x.Request), cp.request) || !strings.Contains(x.Response, cp.answer) {
				t.Fatalf("exchange %d is %s answered by %s, the counterpart is for %s answered by %q", i, x.Request, x.Response, cp.request, cp.answer)
			}
			if cp.step != nil {
				cp.step(c)
			} else if cp.differs == "" {
				t.Errorf("exchange %d, %s: neither a step nor a reason", i, x.Request)
			}
			if t.Failed() {
				t.Fatalf("at exchange %d, %s", i, x.Request)
			}
		}
		if len(rec.Events) != 1 || !strings.Contains(rec.Events[0], "tz1") {
			t.Errorf("recorded events %v", rec.Events)
		}
	})
}

// ask has a sender say something about a transfer, and checks the answer.
func (c *consumer) ask(p *rawPeer, typ frameType, tk *ticket, answer frameType, st status) {
	c.t.Helper()
	p.wantAnswer(answer, p.say(typ, tk, ""), st)
}

var counterparts = []counterpart{
	{"{op:peers}", "ports", "a worker has one data address, in each grant: there is nothing to discover", nil},
	{"{op:event_port}", "result", "waiters are in the receiver's process: no event can be lost", nil},
	{"{op:status,transfer_id:tz1}", "null", "", func(c *consumer) { // not known yet
		tk := &ticket{r: c.receiver, room: &room{want: want("HZ1")}, id: transferID{1}, attempt: 1}
		c.ask(c.p, frameRefresh, tk, frameGrant, statusUnknown)
	}},
	{"{op:reserve,transfer_id:tz1", `"write": true`, "", func(c *consumer) {
		c.first["tz1"] = c.grant(want("HZ1"))[0]
		c.ask(c.p, frameReserve, c.first["tz1"], frameGrant, statusGo)
	}},
	{"{op:reserve,transfer_id:tz1", `"write": false`, "repeating it says go again: its sender has not written yet", func(c *consumer) {
		c.ask(c.p, frameReserve, c.first["tz1"], frameGrant, statusGo)
	}},
	{"{op:reserve,transfer_id:tz2", `"write": false`, "a follower may write as long as nobody else does: who has the bytes first, writes", func(c *consumer) {
		before := c.inUse()
		c.first["tz2"] = c.grant(want("HZ1"))[0]
		if got := c.inUse(); got != before {
			c.t.Errorf("a follower takes %d bytes, want the memory of the other", got-before)
		}
		c.ask(c.q, frameReserve, c.first["tz2"], frameGrant, statusGo)
	}},
	{"{op:reserve,transfer_id:tz1,mm_hash:HZ1,nbytes:32", "conflicting reservation", "", func(c *consumer) {
		tk := c.grant(want("HX"))[0] // in ours a transfer of the wrong size fails, so tz1 stays out of it
		h := data(tk)
		h.Length = 32
		c.p.write(append(h.append(nil), make([]byte, 32)...))
		c.p.wantAck(h, statusSize)
	}},
	{"{op:reserve,transfer_id:tz3", "do not match nbytes", "", func(c *consumer) {
		wt := want("HZ3")
		wt.Bytes = wt.Contract.PayloadBytes() - 1
		c.wantRefused(wt, "do not fit")
	}},
	{"{op:reserve,transfer_id:tz4", "Unsupported torch dtype", "", func(c *consumer) {
		wt := want("HZ4")
		wt.Contract.DType = 99
		c.wantRefused(wt, "dtype")
	}},
	{"{op:reserve,transfer_id:tz5", "pool is full", "only what exceeds the whole pool is refused; what does not fit now waits", func(c *consumer) {
		if _, err := c.Grant(context.Background(), []Want{wantRows("HZ5", 1<<20)}); !errors.Is(err, arena.ErrTooLarge) {
			c.t.Errorf("got %v", err)
		}
	}},
	{"{op:status,transfer_id:tz1}", `"ready": false`, "", func(c *consumer) { c.wantWaiting(c.first["tz1"]) }},
	{"{op:reserve_batch", `"ok": false`, "memory is granted for all objects of a request or for none", func(c *consumer) {
		bad := want("HB2")
		bad.Bytes = 1
		before := c.inUse()
		if _, err := c.Grant(context.Background(), []Want{want("HB1"), bad}); err == nil || c.inUse() != before {
			c.t.Errorf("got %v and %d bytes", err, c.inUse()-before)
		}
		c.first["tb1"] = c.grant(want("HB1"))[0]
	}},
	{"{op:complete,transfer_id:tz1", `"became_ready": true`, "", func(c *consumer) { c.p.deliver(c.first["tz1"], "HZ1") }},
	{"{op:complete,transfer_id:tz1,reservation_id:bad}", `"completed": false`, "", func(c *consumer) {
		h := data(c.first["tz1"])
		h.Attempt++
		c.p.write(append(h.append(nil), make([]byte, h.Length)...))
		c.p.wantAck(h, statusAttempt)
	}},
	{"{op:complete_batch", `"completed": false`, "", func(c *consumer) {
		h := data(c.first["tb1"])
		h.Generation++
		c.p.write(append(h.append(nil), make([]byte, h.Length)...))
		c.p.wantAck(h, statusGeneration)
		c.wantWaiting(c.first["tb1"])
	}},
	{"{op:cancel,transfer_id:never", `"cancelled": true`, "", func(c *consumer) { // before its sender has reserved
		c.first["never"] = c.grant(want("HZ1"))[0]
		c.first["never"].Cancel()
	}},
	{"{op:reserve,transfer_id:never", `"cancelled": true`, "", func(c *consumer) {
		c.ask(c.p, frameReserve, c.first["never"], frameGrant, statusCancelled)
	}},
	{"{op:cancel,transfer_id:tb1", `"cancelled": true`, "", func(c *consumer) {
		c.p.say(frameAbandon, c.first["tb1"], "")
		c.p.wantAlive()
		c.wantMissing(c.first["tb1"], "gave up")
	}},
	{"{op:nope}", "unknown control op", "frames that are not known close their connection: the stream may be out of step", func(c *consumer) {
		c.wantHangUp(header{Type: 99}.append(nil))
	}},
	{"notjson", "malformed control request", "so does what is no frame", func(c *consumer) {
		c.wantHangUp(make([]byte, headerBytes))
	}},
	{"{op:reserve}", "'transfer_id'", "a frame has all its fields; one without a transfer names none", func(c *consumer) {
		h := header{Type: frameReserve, Generation: c.generation}
		c.p.write(h.append(nil))
		c.p.wantAnswer(frameGrant, h, statusUnknown)
	}},
	{"{op:cancel,transfer_id:tz1", `"cancelled": true`, "", func(c *consumer) {
		c.first["tz1"].Cancel()
		c.wantMissing(c.first["tz1"], "cancelled")
	}},
	{"{op:cancel,transfer_id:tz2", `"cancelled": true`, "", func(c *consumer) {
		c.first["tz2"].Cancel()
		c.wantInUse(0)
	}},
}

// wantRefused checks that nothing is granted for wt.
func (c *consumer) wantRefused(wt Want, text string) {
	c.t.Helper()
	before := c.inUse()
	_, err := c.Grant(context.Background(), []Want{wt})
	if err == nil || !strings.Contains(err.Error(), text) || c.inUse() != before {
		c.t.Errorf("got %v, want %q", err, text)
	}
}

// wantHangUp checks that bytes close their connection and no other.
func (c *consumer) wantHangUp(b []byte) {
	c.t.Helper()
	p := c.raw()
	p.write(b)
	p.wantClosed()
	p.nc.Close()
	synctest.Wait()
	c.p.wantAlive()
}
