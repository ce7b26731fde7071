// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The exchanges in testdata/epd were recorded between a client, vLLM's own EPD proxy, two Encoders and a P/D, all
// of vLLM 0.32.0. The client's side is replayed; the workers are stubs that know what vLLM's proxy sent them,
// compare it byte for byte, and answer what was recorded.

// golden is one recorded request.
type golden struct {
	id   string // the request's name, by which the workers' sides are found
	file string // of the client's side, in testdata/epd
	// why, if set, is the reason for an answer that differs from that of vLLM's proxy: status and body are
	// then those of the worker at fault.
	why string
}

// detail is the reason of several differences.
const detail = "vLLM's proxy puts the worker's error into a string in FastAPI's shape; clients of the API get the error itself"

// The runs, each with a proxy of its own, requests in the order of recording.
var (
	goldenOneEncoder = []golden{
		{"epd-req-1", "client_example/image1", ""},
		{"epd-req-2", "client_example/image2", ""},
		{"epd-req-3", "client_example/image1_stream", ""},
		{"epd-req-4", "client_example/text", ""},
	}
	goldenTwoEncoders = []golden{
		{"g2-3img", "client2/2e_3images", ""},
		{"g2-dup", "client2/2e_dup_images", ""},
		{"g2-dup3", "client2/2e_dup3_same_encoder", ""},
		{"g2-uuid", "client2/2e_client_uuid", ""},
		{"g2-mmkw", "client2/2e_mmkw", detail},
		{"g2-prio", "client2/2e_priority_session", ""},
		{"g2-turns", "client2/2e_two_turns", ""},
		{"g2-jpeg", "client2/2e_jpeg", ""},
		{"g2-su", "client2/2e_stream_usage", ""},
		{"g2-bad", "client2/err_bad_image", detail},
		{"g2-nomodel", "client2/err_unknown_model", detail},
		{"g2-nomsg", "client2/err_no_messages", detail},
		{"g2-long", "client2/err_too_long", detail},
		{"g2-many", "client2/err_too_many_images", detail},
	}
	goldenNoRewrite = []golden{
		{"nr-3img", "client_norewrite/nr_3images", ""},
		{"nr-dup", "client_norewrite/nr_dup_images", ""},
	}
)

// replay holds the workers of a run.
type replay struct {
	t      *testing.T
	asSent bool // bodies are spliced from what the client sent, white space included
	mu     sync.Mutex
	ids    map[string]string // our transfer id -> the recorded one
	served []string          // recorded files that were used
}

// exchange is a recorded call to a worker.
type exchange struct {
	File      string `json:"file"`
	To        string `json:"to"`
	RequestID string `json:"request_id"`
}

var exchanges = func() []exchange {
	b, err := os.ReadFile("testdata/epd/http/index.json")
	if err != nil {
		panic(err)
	}
	var all []exchange
	if err := json.Unmarshal(b, &all); err != nil {
		panic(err)
	}
	return all
}()

// recorded reads a file as header and body.
func recorded(t *testing.T, file string) (head []string, body []byte) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/epd", file))
	if err != nil {
		t.Fatal(err)
	}
	for _, blank := range []string{"\r\n\r\n", "\n\n"} {
		if h, rest, ok := bytes.Cut(b, []byte(blank)); ok {
			return strings.Split(strings.ReplaceAll(string(h), "\r", ""), "\n"), rest
		}
	}
	t.Fatalf("%s has no header", file)
	return nil, nil
}

func statusOf(t *testing.T, head []string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.Fields(head[0])[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func headerOf(head []string, name string) string {
	for _, line := range head {
		if k, v, ok := strings.Cut(line, ": "); ok && strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

var (
	childID    = regexp.MustCompile(`^(.+:\d+):[0-9a-f]{6}$`)
	transferID = regexp.MustCompile(`"transfer_id":"([0-9a-f]{32})"`)
)

// find returns the recorded exchange of a request to a worker. The last part of a child's name is random.
func find(to, id string) (exchange, bool) {
	name := id
	if m := childID.FindStringSubmatch(id); m != nil {
		name = m[1]
	}
	i := slices.IndexFunc(exchanges, func(e exchange) bool {
		other := e.RequestID
		if m := childID.FindStringSubmatch(other); m != nil {
			other = m[1]
		}
		return e.To == to && other == name
	})
	if i < 0 {
		return exchange{}, false
	}
	return exchanges[i], true
}

// worker serves what worker name was recorded to answer.
func (r *replay) worker(name string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		id := req.Header.Get("X-Request-Id")
		e, ok := find(name, id)
		if err != nil || !ok {
			r.t.Errorf("%s: a call %s that vLLM's proxy does not make (%v)", name, id, err)
			http.Error(w, "unexpected", http.StatusTeapot)
			return
		}
		_, want := recorded(r.t, "http/"+e.File+".request.http")
		r.compare(e.File, req, body, want)
		head, answer := recorded(r.t, "http/"+e.File+".response.http")
		w.Header().Set("Content-Type", headerOf(head, "content-type"))
		w.WriteHeader(statusOf(r.t, head))
		_, _ = w.Write(r.ours(answer))
	}))
	r.t.Cleanup(s.Close)
	return s.URL
}

// compare holds what a worker got against what was recorded.
func (r *replay) compare(file string, req *http.Request, got, want []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served = append(r.served, file)
	if req.URL.Path != "/v1/chat/completions" || req.Header.Get("Content-Type") != "application/json" {
		r.t.Errorf("%s: %s with Content-Type %q", file, req.URL.Path, req.Header.Get("Content-Type"))
	}
	if !strings.HasPrefix(file, "pd") { // an Encoder is told the ids, in order
		mine, theirs := transferID.FindAllSubmatch(got, -1), transferID.FindAllSubmatch(want, -1)
		if len(mine) != len(theirs) {
			r.t.Fatalf("%s: %d transfer ids, want %d", file, len(mine), len(theirs))
		}
		for i := range mine {
			r.ids[string(mine[i][1])] = string(theirs[i][1])
		}
	}
	for mine, theirs := range r.ids {
		got = bytes.ReplaceAll(got, []byte(mine), []byte(theirs))
	}
	if r.asSent {
		got = compact(got)
	}
	if !bytes.Equal(got, want) {
		r.t.Errorf("%s:\n got %s\nwant %s", file, shown(got), shown(want))
	}
}

// ours puts our transfer ids into a recorded answer.
func (r *replay) ours(answer []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for mine, theirs := range r.ids {
		answer = bytes.ReplaceAll(answer, []byte(theirs), []byte(mine))
	}
	return answer
}

var longBase64 = regexp.MustCompile(`base64,[A-Za-z0-9+/=]{40,}`)

func shown(b []byte) string { return longBase64.ReplaceAllString(string(b), "base64,…") }

// run replays a run and returns the recorded exchanges that took place.
func run(t *testing.T, goldens []golden, encoders int, noRewrite, asSent bool) []string {
	r := &replay{t: t, asSent: asSent, ids: map[string]string{}}
	var static []Instance
	for i := range encoders {
		static = append(static, Instance{Role: Encode, URL: r.worker(fmt.Sprintf("e%d", i+1)), Replicas: 1})
	}
	static = append(static, Instance{Role: PrefillDecode, URL: r.worker("pd"), Replicas: 1, Addresses: []string{"tcp://127.0.0.1:14579"}})
	f := newFront(t, func(c *Config) { c.Static, c.NoRewrite, c.Routing, c.ShortNames = static, noRewrite, RoundRobin, false })
	for _, g := range goldens {
		body, err := os.ReadFile(filepath.Join("testdata/epd", g.file+".request.json"))
		if err != nil {
			t.Fatal(err)
		}
		if !asSent {
			body = compact(body)
		}
		got := f.post(t, g.id, body)
		head, want := recorded(t, g.file+".response.txt")
		status := statusOf(t, head)
		if strings.HasPrefix(g.file, "client_example/") { // recorded again, at another time than the workers' sides
			_, want = recorded(t, "http/"+decodedAs(t, g.id)+".response.http")
		}
		if g.why != "" {
			if bytes.Equal(got.body, want) {
				t.Errorf("%s: the answer is no different: %s", g.id, got.body)
			}
			want = workersError(t, g.id)
		}
		if got.status != status || !bytes.Equal(got.body, want) || got.header.Get("Content-Type") != headerOf(head, "content-type") {
			t.Errorf("%s: got %d %s %s\nwant %d %s", g.id, got.status, got.header.Get("Content-Type"), got.body, status, want)
		}
		if got.header.Get("X-Request-Id") != g.id {
			t.Errorf("%s: answered as %q", g.id, got.header.Get("X-Request-Id"))
		}
	}
	return r.served
}

// workersError returns the recorded error of the worker that failed a request.
func workersError(t *testing.T, id string) []byte {
	t.Helper()
	for _, e := range exchanges {
		if e.RequestID != id && !strings.HasPrefix(e.RequestID, id+":") {
			continue
		}
		if head, body := recorded(t, "http/"+e.File+".response.http"); statusOf(t, head) != http.StatusOK {
			return body
		}
	}
	t.Fatalf("%s: no worker failed", id)
	return nil
}

// decodedAs returns the recorded exchange with the P/D of a request.
func decodedAs(t *testing.T, id string) string {
	t.Helper()
	e, ok := find("pd", id)
	if !ok {
		t.Fatalf("%s never came to the P/D", id)
	}
	return e.File
}

// TestGolden replays every recorded request, in two ways: as vLLM's proxy would have written it, where workers get
// the recorded bytes, and as the client did write it, where they get the client's white space too.
func TestGolden(t *testing.T) {
	for _, asSent := range []bool{false, true} {
		var served []string
		for _, r := range []struct {
			name      string
			goldens   []golden
			encoders  int
			noRewrite bool
		}{{"one encoder", goldenOneEncoder, 1, false}, {"two encoders", goldenTwoEncoders, 2, false}, {"no rewrite", goldenNoRewrite, 2, true}} {
			t.Run(fmt.Sprintf("%s/as sent %v", r.name, asSent), func(t *testing.T) {
				served = append(served, run(t, r.goldens, r.encoders, r.noRewrite, asSent)...)
			})
		}
		for _, e := range exchanges {
			if !slices.Contains(served, e.File) && e.RequestID != "g2-bads:0:4c0618" { // recorded without its client's side
				t.Errorf("%s was not replayed", e.File)
			}
		}
	}
}
