// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// wire is a bare connection to the gateway.
type wire struct {
	net.Conn
	in *bufio.Reader
}

func (f *fleet) wire(t *testing.T) *wire {
	t.Helper()
	c := must[net.Conn](t)(net.Dial("tcp", f.gateway.Listener.Addr().String()))
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &wire{c, bufio.NewReader(c)}
}

// put writes b in pieces of n bytes, each a write of its own.
func (w *wire) put(t *testing.T, b []byte, n int) {
	t.Helper()
	for len(b) > 0 {
		k := min(n, len(b))
		if _, err := w.Write(b[:k]); err != nil {
			t.Fatal(err)
		}
		b = b[k:]
	}
}

func (w *wire) answer(t *testing.T) (answer, *http.Response) {
	t.Helper()
	resp, err := http.ReadResponse(w.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return readAnswer(t, resp), resp
}

// head writes the head of a chat request; extra are whole header lines.
func head(proto string, extra ...string) []byte {
	lines := append([]string{"POST /v1/chat/completions " + proto, "Host: gateway", "Content-Type: application/json"}, extra...)
	return []byte(strings.Join(lines, "\r\n") + "\r\n\r\n")
}

func length(n int) string { return fmt.Sprintf("Content-Length: %d", n) }

// TestBodyInPieces sends a body in small writes, with its length known and as chunks that cut the JSON
// and the picture anywhere.
func TestBodyInPieces(t *testing.T) {
	f := newFleet(t, nil)
	body := goldenRequest(t, "image1")
	want := f.send(t, "POST", "/v1/chat/completions", nil, body)

	known := f.wire(t)
	known.put(t, append(head("HTTP/1.1", length(len(body))), body...), 7)
	a, _ := known.answer(t)
	if got := content(t, a.status, a.body); got != content(t, want.status, want.body) {
		t.Errorf("in pieces it is answered %q: %s", got, want.body)
	}

	chunked := f.wire(t)
	chunked.put(t, head("HTTP/1.1", "Transfer-Encoding: chunked"), 3)
	for rest := body; len(rest) > 0; {
		n := min(11, len(rest))
		chunked.put(t, fmt.Appendf(nil, "%x\r\n%s\r\n", n, rest[:n]), 5)
		rest = rest[n:]
	}
	chunked.put(t, []byte("0\r\n\r\n"), 1)
	a, _ = chunked.answer(t)
	if got := content(t, a.status, a.body); got != content(t, want.status, want.body) {
		t.Errorf("in chunks it is answered %q: %s", got, want.body)
	}
}

// TestExpectContinue: the client of a large body asks before it sends it.
func TestExpectContinue(t *testing.T) {
	f := newFleet(t, func(o *options) { o.maxBody = 64 << 10 })
	body := goldenRequest(t, "image1")
	w := f.wire(t)
	w.put(t, head("HTTP/1.1", length(len(body)), "Expect: 100-continue"), 1<<20)
	interim, err := http.ReadResponse(w.in, nil)
	if err != nil || interim.StatusCode != http.StatusContinue {
		t.Fatalf("before the body the server says %v (%v), want 100", interim, err)
	}
	w.put(t, body, 1<<20)
	if a, _ := w.answer(t); content(t, a.status, a.body) == "" {
		t.Errorf("no answer: %s", a.body)
	}

	// One that is too large is told before it is sent.
	w = f.wire(t)
	w.put(t, head("HTTP/1.1", length(64<<10+1), "Expect: 100-continue"), 1<<20)
	if a, _ := w.answer(t); a.status != http.StatusRequestEntityTooLarge || !strings.Contains(a.body, "65536") {
		t.Errorf("a body over the limit is answered %d %s, want 413 with the limit", a.status, a.body)
	}
}

// TestHTTP10 asks as old proxies do: no chunks may come back, and the end of the connection ends the
// answer.
func TestHTTP10(t *testing.T) {
	f := newFleet(t, nil)
	body := goldenRequest(t, "image1")
	w := f.wire(t)
	w.put(t, append(head("HTTP/1.0", length(len(body))), body...), 1<<20)
	a, resp := w.answer(t)
	if content(t, a.status, a.body) == "" || resp.ContentLength != int64(len(a.body)) || len(resp.TransferEncoding) > 0 {
		t.Errorf("answered %+v", resp)
	}
	w.isClosed(t)

	stream := goldenRequest(t, "image1_stream_usage")
	w = f.wire(t)
	w.put(t, append(head("HTTP/1.0", length(len(stream))), stream...), 1<<20)
	a, resp = w.answer(t)
	if a.status != 200 || len(resp.TransferEncoding) > 0 || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
		t.Errorf("the stream comes as %+v: %s", resp, a.body)
	}
	checkSame(t, a, goldenResponse(t, "image1_stream_usage"))
	w.isClosed(t)
}

func (w *wire) isClosed(t *testing.T) {
	t.Helper()
	if rest, err := io.ReadAll(w.in); err != nil || len(rest) > 0 {
		t.Errorf("after the answer: %q, %v; want the end of the connection", rest, err)
	}
}

// TestPipelinedRequests sends several requests in one write. The answers come whole and in order.
func TestPipelinedRequests(t *testing.T) {
	f := newFleet(t, nil)
	var all bytes.Buffer
	names := []string{"image1", "err_max_tokens_neg", "image1_stream", "text", "err_not_json", "image2"}
	for i, name := range names {
		body := goldenRequest(t, name)
		all.Write(head("HTTP/1.1", length(len(body)), fmt.Sprintf("X-Request-Id: pipe-%d", i)))
		all.Write(body)
	}
	w := f.wire(t)
	go w.Write(all.Bytes()) // the server answers while we still send
	for i, name := range names {
		a, _ := w.answer(t)
		if got := a.header.Get("X-Request-Id"); got != fmt.Sprintf("pipe-%d", i) {
			t.Fatalf("answer %d belongs to %s", i, got)
		}
		checkSame(t, a, goldenResponse(t, name))
	}
}
