// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// received is a call that a stub got.
type received struct {
	path   string
	header http.Header
	body   string
	chat   chatBody
}

// chatBody is what tests look at in the body of a call.
type chatBody struct {
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Stream bool `json:"stream"`
	Params struct {
		Consumer string `json:"consumer_zmq"`
		Items    []struct {
			Hash     string `json:"mm_hash"`
			Transfer string `json:"transfer_id"`
		} `json:"ec_items"`
	} `json:"ec_transfer_params"`
	KV json.RawMessage `json:"kv_transfer_params"`
}

// part is a content part.
type part struct {
	Type     string          `json:"type"`
	UUID     string          `json:"uuid"`
	Image    json.RawMessage `json:"image_url"`
	Embeds   json.RawMessage `json:"image_embeds"`
	AsAudio  json.RawMessage `json:"audio_embeds"`
	AsVideo  json.RawMessage `json:"video_embeds"`
	AudioURL json.RawMessage `json:"audio_url"`
}

func (c chatBody) parts(t *testing.T) []part {
	t.Helper()
	var out []part
	for _, m := range c.Messages {
		var ps []part
		if len(m.Content) > 0 && m.Content[0] == '[' {
			if err := json.Unmarshal(m.Content, &ps); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, ps...)
	}
	return out
}

// stub is a worker that keeps what it got and answers as it is told.
type stub struct {
	*httptest.Server
	mu     sync.Mutex // guards what follows
	got    []received
	answer func(n int, r received, w http.ResponseWriter)
	health int    // status of /health; 0 is 200
	start  string // of the process, as /metrics tells it; "" tells nothing
}

func newStub(t *testing.T, answer func(n int, r received, w http.ResponseWriter)) *stub {
	t.Helper()
	s := &stub{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *stub) serve(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/health":
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.health != 0 {
			w.WriteHeader(s.health)
		}
		return
	case "/metrics":
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.start != "" {
			fmt.Fprintf(w, "# HELP process_start_time_seconds Start time.\n# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %s\nprocess_open_fds 9\n", s.start)
		}
		return
	case "/v1/models":
		fmt.Fprintf(w, `{"object":"list","data":[{"id":"m"},{"id":"at %s"}]}`, r.Host)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller left
	}
	got := received{path: r.URL.Path, header: r.Header, body: string(body)}
	_ = json.Unmarshal(body, &got.chat)
	s.mu.Lock()
	n := len(s.got)
	s.got = append(s.got, got)
	answer := s.answer
	s.mu.Unlock()
	answer(n, got, w)
}

func (s *stub) calls() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]received(nil), s.got...)
}

// startAt has the stub say that its process was started then.
func (s *stub) startAt(start string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start = start
}

func (s *stub) setHealth(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health = status
}

// encodes answers as a vLLM Encoder does: a grid for every medium, under the name that it was sent with suffix.
func encodes(suffix string) func(int, received, http.ResponseWriter) {
	return func(_ int, r received, w http.ResponseWriter) {
		var ps []part
		_ = json.Unmarshal(r.chat.Messages[0].Content, &ps)
		at := map[string][]int{}
		var order []string
		for i, p := range ps {
			if at[p.UUID] == nil {
				order = append(order, p.UUID)
			}
			at[p.UUID] = append(at[p.UUID], i)
		}
		var entries []string
		for _, u := range order {
			indices, _ := json.Marshal(at[u])
			entries = append(entries, fmt.Sprintf(`%q:{"item_indices":%s,"metadata":{"image_grid_thw":[[1,16,%d]]}}`, u+suffix, indices, len(u)))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"x","ec_transfer_params":{%s}}`, strings.Join(entries, ","))
	}
}

const completion = `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}`

// says answers with a status and a JSON body.
func says(status int, body string) func(int, received, http.ResponseWriter) {
	return func(_ int, _ received, w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// inTurn answers with each of fs once, then with the last.
func inTurn(fs ...func(int, received, http.ResponseWriter)) func(int, received, http.ResponseWriter) {
	return func(n int, r received, w http.ResponseWriter) { fs[min(n, len(fs)-1)](n, r, w) }
}

// hangUp breaks the connection without an answer.
func hangUp(_ int, _ received, w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		c.Close()
	}
}

// image is a content part with a picture of its own.
func image(name string) string {
	return `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + name + `"}}`
}

// chat is a request with content parts.
func chat(parts ...string) []byte {
	return []byte(`{"model":"m","messages":[{"role":"user","content":[` + strings.Join(parts, ",") + `]}]}`)
}

const text = `{"type":"text","text":"hi"}`

// messageOf reads an error in the API's shape.
func messageOf(t *testing.T, a answered) (message, kind string) {
	t.Helper()
	var e struct {
		Error struct {
			Message string `json:"message"`
			Type    string `json:"type"`
			Code    int    `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(a.body, &e); err != nil || e.Error.Message == "" || e.Error.Type == "" || e.Error.Code != a.status {
		t.Errorf("%d %s is no error in the API's shape (%v)", a.status, a.body, err)
	}
	return e.Error.Message, e.Error.Type
}

func fails(t *testing.T, a answered, status int, words string) {
	t.Helper()
	if msg, _ := messageOf(t, a); a.status != status || !strings.Contains(msg, words) {
		t.Errorf("got %d %q, want %d with %q", a.status, msg, status, words)
	}
}

func works(t *testing.T, a answered) {
	t.Helper()
	if a.status != http.StatusOK {
		t.Errorf("got %d %s, want 200", a.status, a.body)
	}
}
