// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func sse(events ...string) func(int, received, http.ResponseWriter) {
	return func(_ int, _ received, w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, e := range events {
			fmt.Fprintf(w, "data: %s\n\n", e)
			w.(http.Flusher).Flush()
		}
	}
}

const (
	chunk  = `{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`
	finish = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
)

func streaming(parts ...string) []byte {
	return bytes.Replace(chat(parts...), []byte(`"model"`), []byte(`"stream":true,"model"`), 1)
}

// TestErrorsKeepStatusAndWords (P05): whatever stage fails, with and without streaming, before the first byte.
func TestErrorsKeepStatusAndWords(t *testing.T) {
	shape := func(status int) string {
		return fmt.Sprintf(`{"error":{"message":"words of %d","type":"SomeType","param":"p","code":%d}}`, status, status)
	}
	for _, body := range [][]byte{chat(image("AAAA")), streaming(image("AAAA"))} {
		for _, status := range []int{400, 401, 404, 413, 422, 429, 500, 501, 503} {
			for _, stage := range []stage{stageEncode, stagePrefill, stageDecode} {
				f := newStatic(t, 1, true, says(200, completion), nil)
				f.map3()[stage].answer = says(status, shape(status))
				got := f.post(t, "", body)
				fails(t, got, status, fmt.Sprintf("words of %d", status))
				if want := status == 429 || status == 503; (got.header.Get("Retry-After") != "") != want {
					t.Errorf("%s %d: Retry-After %q", stage, status, got.header.Get("Retry-After"))
				}
				if stage != stageDecode && len(f.d[0].calls()) > 0 {
					t.Errorf("%s %d: decode was asked", stage, status)
				}
			}
		}
		// What is in no shape of the API keeps its status, too.
		for answer, words := range map[string]string{`{"detail":"gone fishing"}`: "gone fishing", "<html>": "<html>", "": "answered 418", "\xff\xfe": "answered 418: ?"} {
			f := newStatic(t, 1, false, says(418, answer), nil)
			fails(t, f.post(t, "", body), 418, words)
		}
		for _, odd := range []int{302, 204, 600} {
			f := newStatic(t, 1, false, says(odd, ""), nil)
			fails(t, f.post(t, "", body), 502, fmt.Sprint(odd))
		}
	}
}

// map3 is the only worker of each stage.
func (f *fleet) map3() map[stage]*stub {
	m := map[stage]*stub{stageEncode: f.e[0], stageDecode: f.d[0]}
	if len(f.p) > 0 {
		m[stagePrefill] = f.p[0]
	}
	return m
}

// addTwin puts a second worker of a role in service.
func (f *fleet) addTwin(t *testing.T, role Role, answer func(int, received, http.ResponseWriter)) *stub {
	t.Helper()
	s := newStub(t, answer)
	register(t, f.reg, role, s.URL)
	return s
}

// TestFailover: what was not accepted goes to another worker, of every stage.
func TestFailover(t *testing.T) {
	good := map[stage]func(int, received, http.ResponseWriter){
		stageEncode: encodes(""), stagePrefill: says(200, `{}`), stageDecode: says(200, completion),
	}
	roles := map[stage]Role{stageEncode: Encode, stagePrefill: Prefill, stageDecode: Decode}
	for st, answer := range good {
		for name, bad := range map[string]func(int, received, http.ResponseWriter){
			"hang up": hangUp, "busy": says(503, `{"error":{"message":"m","type":"t"}}`), "too many": says(429, ``), "bad gateway": says(502, `x`), "timed out": says(408, ``),
		} {
			t.Run(string(st)+" "+name, func(t *testing.T) {
				f := newStatic(t, 1, true, says(200, completion), nil)
				first := f.map3()[st]
				first.answer = bad
				twin := f.addTwin(t, roles[st], answer)
				for range 2 { // whichever is asked first
					works(t, f.post(t, "", chat(image("AAAA"))))
				}
				if len(first.calls()) == 0 || len(twin.calls()) != 2 {
					t.Errorf("%d calls to the bad one, %d to the good one", len(first.calls()), len(twin.calls()))
				}
				d := f.d[0].calls()
				if st == stagePrefill && len(d) != 2 {
					t.Errorf("decode was asked %d times, want 2", len(d))
				}
			})
		}
	}
}

// TestNoWorkerIsTriedForEver: a fleet that is down is one error, and no more calls than workers and retries.
func TestNoWorkerIsTriedForEver(t *testing.T) {
	f := newStatic(t, 1, false, hangUp, nil)
	f.addTwin(t, PrefillDecode, hangUp)
	fails(t, f.post(t, "", chat(text)), 502, "the decode worker did not answer")
	if n := len(f.d[0].calls()); n < 1 || n > 2 {
		t.Errorf("%d calls to one of two workers, want 3 in all", n)
	}
	busy := newStatic(t, 1, false, says(503, `{"error":{"message":"m","type":"t"}}`), nil)
	fails(t, busy.post(t, "", chat(text)), 503, "m")
	if n := len(busy.d[0].calls()); n != 1 {
		t.Errorf("a busy worker was asked %d times", n)
	}
	g := newStatic(t, 1, false, says(500, `{"error":{"message":"m","type":"t"}}`), func(c *Config) { c.DecodeRetries = 3 })
	fails(t, g.post(t, "", chat(image("AAAA"))), 500, "m")
	if e, d := len(g.e[0].calls()), len(g.d[0].calls()); e != 4 || d != 4 {
		t.Errorf("%d encodes, %d decodes; want 4 each", e, d)
	}
}

// TestBrokenStream (P04): a worker that dies in the middle of its answer ends the stream with an error frame, and
// an answer that is not streamed is an error.
func TestBrokenStream(t *testing.T) {
	for name, broken := range map[string]func(int, received, http.ResponseWriter){
		"no end":          sse(chunk),
		"no reason":       sse(chunk, "[DONE]"),
		"half an event":   func(n int, r received, w http.ResponseWriter) { sse(chunk)(n, r, w); io.WriteString(w, `data: {"cho`) },
		"connection lost": func(n int, r received, w http.ResponseWriter) { sse(chunk)(n, r, w); hangUp(n, r, w) },
		"own error":       sse(chunk, `{"error":{"message":"m","type":"t"}}`, "[DONE]"),
	} {
		f := newStatic(t, 1, false, broken, nil)
		got := f.post(t, "", streaming(text))
		events := strings.Split(strings.TrimSpace(string(got.body)), "\n\n")
		if len(events) != 3 || events[0] != "data: "+chunk || !strings.HasPrefix(events[1], `data: {"error":{`) || events[2] != "data: [DONE]" {
			t.Errorf("%s: got %q", name, got.body)
		}
		if len(f.d[0].calls()) != 1 {
			t.Errorf("%s: asked %d times after the first byte", name, len(f.d[0].calls()))
		}
	}
	f := newStatic(t, 1, false, func(_ int, _ received, w http.ResponseWriter) {
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, `{"choices":[`)
	}, nil)
	fails(t, f.post(t, "", chat(text)), 502, "the decode worker broke off its answer")
}

// TestNo200BeforeTheFirstByte: a stream whose worker has sent a header and nothing else is no answer yet.
func TestNo200BeforeTheFirstByte(t *testing.T) {
	f := newStatic(t, 1, false, func(n int, r received, w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		hangUp(n, r, w)
	}, nil)
	f.addTwin(t, PrefillDecode, sse(chunk, finish, "[DONE]"))
	for range 2 {
		got := f.post(t, "", streaming(text))
		if works(t, got); strings.Contains(string(got.body), "error") {
			t.Errorf("got %s", got.body)
		}
	}
}

// TestEjection: a worker whose calls break is left alone, longer each time; one call tries it out, and it is back.
func TestEjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(RegistryConfig{FailThreshold: 3, Backoff: time.Second})
		register(t, r, Decode, "a", "b")
		served := func(n int) map[string]int {
			got := map[string]int{}
			for range n {
				got[r.pick(Decode, Affinity, shunned{}, time.Now()).URL]++
			}
			return got
		}
		fail := func() {
			_, c := r.begin(t.Context(), r.find("a"))
			c.end(broke)
		}
		for wait := time.Second; wait <= 16*time.Second; wait *= 2 {
			fail()
			time.Sleep(wait - time.Millisecond)
			if got := served(4); got["a"] > 0 {
				t.Fatalf("%v after it broke: %v", wait-time.Millisecond, got)
			}
			time.Sleep(2 * time.Millisecond)
			if got := served(4); got["a"] == 0 {
				t.Fatalf("%v after it broke, it is not tried out: %v", wait, got)
			}
		}
		_, trying := r.begin(t.Context(), r.find("a"))
		if got := served(4); got["a"] > 0 {
			t.Errorf("while one call tries it out, others go there: %v", got)
		}
		trying.end(worked)
		if got := served(4); got["a"] != 2 {
			t.Errorf("after a call went well: %v", got)
		}
		r.Unregister("b") // the only one there is, is used whatever it did
		fail()
		if got := served(1); got["a"] != 1 {
			t.Errorf("the last worker is left alone: %v", got)
		}
	})
}

// TestAFailedAnswerIsNotTheWorkersFault: one 500 may be that of its request.
func TestAFailedAnswerIsNotTheWorkersFault(t *testing.T) {
	r := newTestRegistry()
	register(t, r, Decode, "a", "b")
	for n := range maxFailures {
		if got := picks(r, Decode, 2); got[0] == got[1] {
			t.Fatalf("after %d failures it is left alone", n)
		}
		_, c := r.begin(t.Context(), r.find("a"))
		c.end(failed)
	}
	same(t, "picks", picks(r, Decode, 2), []string{"b", "b"})
}

// TestClientLeaves (T11): all calls end when the client goes, at every stage.
func TestClientLeaves(t *testing.T) {
	for _, st := range []stage{stageEncode, stagePrefill, stageDecode, "stream"} {
		t.Run(string(st), func(t *testing.T) {
			entered, left := make(chan struct{}), make(chan struct{})
			f := newStatic(t, 1, true, says(200, completion), nil)
			hold := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if st == "stream" {
					sse(chunk)(0, received{}, w)
				}
				close(entered)
				<-r.Context().Done()
				close(left)
			})
			at := st
			if st == "stream" {
				at = stageDecode
			}
			f.map3()[at].Config.Handler = hold
			ctx, leave := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/v1/chat/completions", bytes.NewReader(streaming(image("AAAA"))))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			<-entered
			leave()
			<-done
			select {
			case <-left:
			case <-time.After(20 * time.Second): // it takes milliseconds; the machine may be busy
				t.Error("the worker still has the call")
			}
		})
	}
}

// TestFrozenWorker: a worker that answers neither its call nor its probes has its calls cut and made elsewhere.
func TestFrozenWorker(t *testing.T) {
	frozen, entered := make(chan struct{}), make(chan struct{}, 8)
	f := newStatic(t, 1, false, func(int, received, http.ResponseWriter) { entered <- struct{}{}; <-frozen }, nil)
	defer close(frozen)
	got := make(chan answered, 1)
	go func() { got <- f.post(t, "", chat(text)) }()
	<-entered
	twin := f.addTwin(t, PrefillDecode, says(200, completion))
	f.d[0].setHealth(503)
	for range 3 {
		f.probeAll(t.Context())
	}
	works(t, <-got)
	if len(twin.calls()) != 1 {
		t.Errorf("%d calls to the other worker", len(twin.calls()))
	}
}

// TestOnlySilentCallsAreCut: an instance that answers no probe, and yet sends, keeps the calls that it sends on.
func TestOnlySilentCallsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestRegistry()
		register(t, r, PrefillDecode, "d")
		e := r.find("d")
		streams, c := r.begin(t.Context(), e)
		silent, other := r.begin(t.Context(), e)
		time.Sleep(time.Second)
		round(r, "d", false, time.Now())
		time.Sleep(time.Second)
		c.alive()
		round(r, "d", false, time.Now())
		round(r, "d", false, time.Now())
		if err := context.Cause(streams); err != nil {
			t.Errorf("the call that was heard of: %v", err)
		}
		if err := context.Cause(silent); err != errSilent {
			t.Errorf("the other: %v, want %v", err, errSilent)
		}
		c.end(unsaid)
		other.end(unsaid)
	})
}

// TestStaleConnection: a connection that the worker closed while it was idle is no failure.
func TestStaleConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() { // one answer per connection, without a word that it is the last
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				io.Copy(io.Discard, req.Body)
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(completion), completion)
			}
			c.Close()
		}
	}()
	f := newFront(t, func(c *Config) {
		c.Static = []Instance{{Role: PrefillDecode, URL: "http://" + ln.Addr().String(), Replicas: 1}}
	})
	for range 20 {
		works(t, f.post(t, "", chat(text)))
	}
}
