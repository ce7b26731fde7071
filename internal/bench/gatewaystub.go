// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"afterimage/internal/admin"
)

// vllmStub is a worker that answers as vLLM does and does no work. As an Encoder it remembers the names of what it
// was sent whole, as a processor cache does.
type vllmStub struct {
	mu   sync.Mutex // guards the fields below
	held map[string]bool
	hold int           // calls that are answered together; 0 answers at once
	in   int           // of them, those that wait
	free chan struct{} // closed when they are let go
}

func newVLLMStub() *vllmStub { return &vllmStub{held: map[string]bool{}, free: make(chan struct{})} }

// tailBytes is how much of the end of a body is looked at: names and options stand there.
const tailBytes = 2 << 10

var (
	stubUUID   = regexp.MustCompile(`"uuid": ?"([^"]+)"`)
	stubStream = regexp.MustCompile(`"stream": ?true`)
)

// stubPieces are buffers that bodies are read through, so that a stub costs as little as it can.
var stubPieces = sync.Pool{New: func() any { b := make([]byte, tailBytes+256<<10); return &b }}

// drain reads a body and returns its length and its end.
func drain(r io.Reader) (n int, tail []byte, err error) {
	p := stubPieces.Get().(*[]byte)
	defer stubPieces.Put(p)
	b := *p // the end of what was read, and room for what is read next
	for err == nil {
		var got int
		got, err = r.Read(b[tailBytes:])
		copy(b[:tailBytes], b[got:])
		n += got
	}
	if err == io.EOF {
		err = nil
	}
	return n, bytes.Clone(b[max(0, tailBytes-n):tailBytes]), err
}

// encode answers as an Encoder.
func (s *vllmStub) encode(w http.ResponseWriter, r *http.Request) {
	n, tail, err := drain(r.Body)
	if err != nil {
		return
	}
	m := stubUUID.FindSubmatch(tail)
	if m == nil {
		http.Error(w, "no uuid in the last bytes of the body", http.StatusBadRequest)
		return
	}
	name := string(m[1])
	s.mu.Lock()
	known := s.held[name]
	if n > tailBytes {
		s.held[name] = true
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if !known && bytes.Contains(tail, []byte(`"image_url":null`)) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"Cache miss for image at index 0 but data is not provided.","type":"BadRequestError","param":null,"code":400}}`)
		return
	}
	s.wait(r.Context())
	fmt.Fprintf(w, `{"id":"e","ec_transfer_params":{%q:{"item_indices":[0],"metadata":{"image_grid_thw":[1,64,64]}}}}`, name)
}

// The answers of the stub P/D.
const (
	stubCompletion = `{"id":"c","object":"chat.completion","created":1,"model":"stub","choices":[{"index":0,"message":{"role":"assistant","content":"A picture."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"total_tokens":2,"completion_tokens":1}}`
	stubChunk      = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"stub","choices":[{"index":0,"delta":{"content":"A"},"finish_reason":null}]}` + "\n\n"
	stubEnd        = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"stub","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
)

// decode answers as a P/D: at once, or with a stream that stands still until it is let go.
func (s *vllmStub) decode(w http.ResponseWriter, r *http.Request) {
	_, tail, err := drain(r.Body)
	if err != nil {
		return
	}
	if !stubStream.Match(tail) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, stubCompletion)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	_, _ = io.WriteString(w, stubChunk)
	_ = http.NewResponseController(w).Flush()
	s.wait(r.Context())
	_, _ = io.WriteString(w, stubEnd)
}

// wait holds a call until as many wait as were asked for, or the hold is lifted.
func (s *vllmStub) wait(ctx context.Context) {
	s.mu.Lock()
	if s.hold == 0 {
		s.mu.Unlock()
		return
	}
	s.in++
	free := s.free
	s.mu.Unlock()
	select {
	case <-free:
	case <-ctx.Done():
	}
}

// serveHold sets (POST ?on=1) or lifts (POST) the hold, and says how many calls wait (GET).
func (s *vllmStub) serveHold(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPost {
		s.hold, _ = strconv.Atoi(r.URL.Query().Get("on"))
		if s.hold == 0 {
			close(s.free)
			s.free, s.in = make(chan struct{}), 0
		}
	}
	fmt.Fprint(w, s.in)
}

// mux serves the stub; chat answers chat calls.
func (s *vllmStub) mux(chat http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", chat)
	mux.HandleFunc("/hold", s.serveHold)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"stub","object":"model","created":1,"owned_by":"stub"}]}`)
	})
	return mux
}

// ServeVLLMStubs runs one stub vLLM Encoder and one stub vLLM P/D as ServeStubs does its own.
func ServeVLLMStubs(ctx context.Context, w io.Writer) error {
	e, pd := newVLLMStub(), newVLLMStub()
	var at stubAddresses
	return serveAll(ctx, w, &at, map[*string]http.Handler{&at.Encoder: e.mux(e.encode), &at.Prefill: pd.mux(pd.decode)})
}

// serveAll serves each handler on a free port of loopback until ctx ends, after it has written the addresses to w
// as one line of JSON.
func serveAll(ctx context.Context, w io.Writer, at any, handlers map[*string]http.Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var servers errgroup.Group
	for url, handler := range handlers {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			cancel()
			return errors.Join(err, servers.Wait())
		}
		*url = "http://" + ln.Addr().String()
		servers.Go(func() error {
			defer cancel() // one alone is of no use
			return admin.Serve(ctx, ln, handler, time.Second)
		})
	}
	if err := json.NewEncoder(w).Encode(at); err != nil {
		cancel()
		return errors.Join(err, servers.Wait())
	}
	return servers.Wait()
}
