// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"testing"
	"time"
)

// megabyte is as many rows as make an object of about 1 MiB.
const megabyte = 8192

// hosts starts a sender and a receiver on two hosts.
func hosts(t *testing.T) (send, recv *host, w *wire) {
	t.Helper()
	send, recv = startHost(t, 1), startHost(t, 2)
	return send, recv, connect(t, send, recv)
}

// grant has the receiver make room for an object.
func (h *host) grant(name string, rows int) hostRequest {
	h.t.Helper()
	resp := h.call(hostRequest{Op: "grant", Name: name, Rows: rows, Timeout: 5 * time.Second})
	if resp.Error != "" {
		h.t.Fatalf("grant of %s: %s", name, resp.Error)
	}
	return hostRequest{Name: name, Rows: rows, Grant: resp.Grant}
}

// do has the host take one step for what was granted.
func (h *host) do(op string, granted hostRequest, timeout time.Duration) hostResponse {
	h.t.Helper()
	granted.Op, granted.Timeout = op, timeout
	return h.call(granted)
}

// wantUsed checks how many bytes of the host's arena are handed out.
func (h *host) wantUsed(want int64) {
	h.t.Helper()
	if got := h.call(hostRequest{Op: "used"}).Bytes; got != want {
		h.t.Errorf("host %d has %d bytes in use, want %d", h.n, got, want)
	}
}

// TestTwoHosts delivers over a wire that is slow and loses packets. Both hosts share a kernel, so their
// boot ids are equal; their network namespaces are not, so nothing is lent.
func TestTwoHosts(t *testing.T) {
	t.Parallel()
	send, recv, w := hosts(t)
	w.set(func(w *wire) { w.delay, w.loss = 10*time.Millisecond, 0.01 })
	for _, name := range []string{"a", "b", "c"} {
		g := recv.grant(name, megabyte)
		if resp := send.do("send", g, 30*time.Second); resp.Error != "" {
			t.Errorf("%s: %s", name, resp.Error)
		}
		if resp := recv.do("wait", g, 5*time.Second); resp.Error != "" || resp.Foreign {
			t.Errorf("%s: %s, foreign %v", name, resp.Error, resp.Foreign)
		}
	}
	send.wantUsed(0)
	recv.wantUsed(0)
}

// TestT06CutHost: the wire is cut in the middle of an object. The receiver has its memory back within
// WriterTimeout; the sender knows, too, in time; and both work once the wire is whole.
func TestT06CutHost(t *testing.T) {
	t.Parallel()
	send, recv, w := hosts(t)
	first := recv.grant("first", 16)
	if resp := send.do("send", first, 5*time.Second); resp.Error != "" { // so that the connection is there
		t.Fatal(resp.Error)
	}
	if resp := recv.do("wait", first, 5*time.Second); resp.Error != "" {
		t.Fatal(resp.Error)
	}
	g := recv.grant("cut", 16*megabyte)
	w.set(func(w *wire) { w.after = 300 })
	sent := make(chan hostResponse, 1)
	go func() { sent <- send.do("send", g, 30*time.Second) }()
	resp := recv.do("wait", g, 20*time.Second)
	if resp.Class != "missing" {
		t.Errorf("the receiver waited and got %+v", resp)
	}
	if resp.Took > 5*time.Second { // 2 s, and time for a busy machine
		t.Errorf("the receiver waited %v for a host that was cut off", resp.Took)
	}
	recv.wantUsed(0)
	if resp := <-sent; resp.Class != "peer" || resp.Took > 25*time.Second {
		t.Errorf("the sender got %+v", resp)
	}
	send.wantUsed(0)

	w.set(func(w *wire) { w.cut = [2]bool{} })
	again := recv.grant("again", megabyte)
	if resp := send.do("send", again, 30*time.Second); resp.Error != "" {
		t.Errorf("after the cut: %s", resp.Error)
	}
	if resp := recv.do("wait", again, 5*time.Second); resp.Error != "" {
		t.Errorf("after the cut: %s", resp.Error)
	}
}

// TestT06HalfOpenHost: a host that has reserved loses power, so that its connection stays half open. The
// receiver does not wait for it beyond its patience, and another sender delivers.
func TestT06HalfOpenHost(t *testing.T) {
	t.Parallel()
	send, recv, w := hosts(t)
	g := recv.grant("lost", megabyte)
	send.do("reserve", g, time.Second)
	other := recv.grant("other", 16)
	if resp := send.do("send", other, 5*time.Second); resp.Error != "" { // the reservation was before it
		t.Fatal(resp.Error)
	}
	w.set(func(w *wire) { w.cut = [2]bool{true, true} })
	send.kill()
	resp := recv.do("wait", g, 20*time.Second)
	if resp.Class != "missing" || resp.Took > 5*time.Second {
		t.Errorf("the receiver waited and got %+v", resp)
	}
	if resp := recv.do("wait", other, 5*time.Second); resp.Error != "" {
		t.Errorf("what had arrived: %s", resp.Error)
	}
	recv.wantUsed(0)
}

// TestDeafHost: packets of the receiver no longer arrive, so that no sender hears whether its object
// did. It gives up in time, and the object is there or its memory is back.
func TestDeafHost(t *testing.T) {
	t.Parallel()
	send, recv, w := hosts(t)
	first := recv.grant("first", 16)
	if resp := send.do("send", first, 5*time.Second); resp.Error != "" {
		t.Fatal(resp.Error)
	}
	recv.do("wait", first, 5*time.Second)
	w.set(func(w *wire) { w.cut[1] = true })
	g := recv.grant("unheard", 16)
	if resp := send.do("send", g, 30*time.Second); resp.Class != "peer" || resp.Took > 25*time.Second {
		t.Errorf("the sender got %+v", resp)
	}
	if resp := recv.do("wait", g, 5*time.Second); resp.Error != "" && resp.Class != "missing" {
		t.Errorf("the receiver got %+v", resp)
	}
	send.wantUsed(0)
	recv.wantUsed(0)
}
