// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"afterimage/internal/media"
	"afterimage/internal/proxy"
)

// The cases of this file are faults that users of other gateways reported.

// TestMalformedBodies: 4xx in the API's shape that names the part, and no worker is asked.
func TestMalformedBodies(t *testing.T) {
	f := newStatic(t, 1, false, says(200, completion), nil)
	for body, words := range map[string]string{
		``:                          "Expecting value",
		`{`:                         "Expecting property name",
		`[]`:                        "must be a JSON object",
		`"x"`:                       "must be a JSON object",
		`{"a":1}x`:                  "Extra data",
		`{"a":01}`:                  "Expecting",
		"{\"a\":\"\x01\"}":          "control character",
		"{\"a\":\"\xff\"}":          "Invalid UTF-8",
		`{"model":"a","model":"b"}`: "stands twice",
		`{"messages":[{"content":[],"content":[]}]}`:                                                        "stands twice",
		`{"stream":"yes"}`:                                                                                  "valid boolean",
		`{"messages":[{"content":[{"type":"image_url","type":"x"}]}]}`:                                      "stands twice",
		`{"messages":[{"content":[{"type":"image_url","image_url":{"url":"a","url":"b"}}]}]}`:               "more than one URL",
		`{"messages":[{"content":[{"type":"image_url","image_url":{"url":"a"},"video_url":{"url":"b"}}]}]}`: "more than one URL",
		`{"messages":[{"content":[{"type":"image_url","image_url":{"url":"a` + "\xff" + `"}}]}]}`:           "Invalid UTF-8",
		strings.Repeat("[", 1000):                                                                           "nests deeper",
		`{"messages":[{"content":[{"type":"image_url","uuid":"` + strings.Repeat("u", 600) + `"}]}]}`:       "at most 512",
	} {
		got := f.post(t, "", []byte(body))
		fails(t, got, 400, words)
	}
	many := `{"messages":[{"content":[` + strings.Repeat(image("AAAA")+",", 64) + image("AAAA") + `]}]}`
	fails(t, f.post(t, "", []byte(many)), 400, "At most 64 media part(s)")
	if n := len(f.e[0].calls()) + len(f.d[0].calls()); n > 0 {
		t.Errorf("%d calls to workers", n)
	}
	fails(t, f.send(t, http.MethodPost, "/v1/chat/completions", []byte("\x1f\x8b"), "Content-Encoding", "gzip"), 415, "gzip")
}

// TestWhatComesBackIsBounded: no answer repeats what a client or a worker has written at length.
func TestWhatComesBackIsBounded(t *testing.T) {
	long := strings.Repeat("x", 5000)
	f := newStatic(t, 1, false, says(400, `{"error":{"message":"`+strings.Repeat(long, 100)+`","type":"T","param":"`+long+`"}}`), nil)
	short := func(got answered, status, most int) {
		t.Helper()
		if fails(t, got, status, "x"); len(got.body) > most {
			t.Errorf("%d bytes: %.200s", len(got.body), got.body)
		}
	}
	short(f.post(t, "", chat(text)), 400, 5000)
	short(f.send(t, http.MethodPost, "/v1/chat/completions", chat(text), "Content-Encoding", long), 415, 400)
	short(f.post(t, "", []byte(`{"`+long+`":1,"`+long+`":2}`)), 400, 800)
	d := newFront(t, func(c *Config) { c.Dynamic, c.AdminKey = true, "k" })
	for _, body := range []string{`{"role":"` + long + `","url":"http://h:1"}`, `{"role":"encode","url":"` + long + `"}`} {
		short(d.send(t, http.MethodPost, "/instances", []byte(body), "X-API-Key", "k"), 422, 400)
	}
}

// TestNoSumOutlivesItsRequest: whatever becomes of a request, nobody computes of the memory that its body lies in.
func TestNoSumOutlivesItsRequest(t *testing.T) {
	f := newStatic(t, 1, false, says(200, completion), nil)
	for i, body := range []string{
		string(chat(image("%s"))),
		`{"messages":[{"content":[` + image("%s") + `}`,
		`{"messages":[{"content":[{"type":"image_url","image_url":{"url":"%s`,
		`{"messages":[{"content":[{"type":"image_url","uuid":"u","image_url":{"url":"%s"}}]}]}`,
		`{"messages":[{"content":[{"type":"image_url","image_url":{"url":"%s` + "ÿ" + `"}}]}]}`,
		`{"messages":[{"content":[{"type":"text","image_url":{"url":"%s"}}]}]}`,
	} {
		f.post(t, "", []byte(strings.Replace(body, "%s", strings.Repeat(string(rune('A'+i)), 3*beginning), 1)))
		if n := f.names.sums.Open(); n > 0 {
			t.Errorf("%.70s…: %d sums are open", body, n)
		}
	}
}

// TestOddShapesReachTheWorker (P09, P12): what makes no sense to the front is the worker's to refuse, and no medium is
// dropped on the way.
func TestOddShapesReachTheWorker(t *testing.T) {
	for _, body := range []string{
		`{"model":"m"}`, `{"messages":"hi"}`, `{"messages":[1,"x",null,{}]}`, `{"messages":[{"role":"user","content":7}]}`,
		`{"messages":[{"content":[null,3,"x",{"type":7},{"type":"unknown","image_url":{"url":"data:,x"}},{"image_url":{"url":"data:,x"}}]}]}`,
		` { "messages" : [ ] , "x" : [ 1.50 , "\u00e9" ] } `,
	} {
		f := newStatic(t, 1, false, says(200, completion), nil)
		works(t, f.post(t, "", []byte(body)))
		if d := f.d[0].calls(); len(d) != 1 || d[0].body != body {
			t.Errorf("%s: the worker got %q", body, d[0].body)
		}
		if len(f.e[0].calls()) > 0 {
			t.Errorf("%s: an Encoder was asked", body)
		}
	}
	// The URL itself in the place of the object with it, other media, and none of either.
	for part, kind := range map[string]string{
		`{"type":"image_url","image_url":"data:image/png;base64,AAAA"}`:         "image_embeds",
		`{"image_url":{"url":"data:,x"},"type":"image_url"}`:                    "image_embeds",
		`{"type":"video_url","video_url":{"url":"data:video/mp4;base64,AAAA"}}`: "video_embeds",
		`{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}`:   "audio_embeds",
		`{"type":"image_url","image_url":null,"uuid":"mine"}`:                   "image_embeds",
		`{"type":"image_url","uuid":null,"image_url":{"url":"data:,y"}}`:        "image_embeds",
	} {
		f := newStatic(t, 1, false, says(200, completion), nil)
		works(t, f.post(t, "", chat(text, part)))
		if e := f.e[0].calls(); len(e) != 1 || e[0].chat.parts(t)[0].UUID == "" {
			t.Errorf("%s: Encoders got %+v", part, e)
		}
		if got := f.d[0].calls()[0].chat.parts(t); got[1].Type != kind {
			t.Errorf("%s became %+v", part, got[1])
		}
	}
	f := newStatic(t, 1, false, says(200, completion), nil)
	if got := f.send(t, http.MethodPost, "/v1/responses", []byte(`{"input":[{"role":"user"}]}`)); got.status != 404 {
		t.Errorf("a request of another API: %d %s", got.status, got.body)
	}
	if got := f.send(t, http.MethodGet, "/v1/chat/completions", nil); got.status != 405 || got.header.Get("Allow") != "POST" {
		t.Errorf("GET: %d, Allow %q", got.status, got.header.Get("Allow"))
	}
}

// TestOptionsBelongToTheName (K02): an image that an Encoder holds under one set of options is sent whole with another.
func TestOptionsBelongToTheName(t *testing.T) {
	f := newStatic(t, 1, false, says(200, completion), func(c *Config) { c.ShortNames = true })
	sent := func() string { c := f.e[0].calls(); return string(c[len(c)-1].chat.parts(t)[0].Image) }
	post := func(extra string) {
		works(t, f.post(t, "", bytes.Replace(chat(image("AAAA")), []byte(`"model":"m"`), []byte(`"model":"m"`+extra), 1)))
	}
	post("")
	if sent() == "null" {
		t.Error("an image was sent by name that nobody has")
	}
	if post(""); sent() != "null" {
		t.Error("an image that the Encoder has was sent whole")
	}
	for _, options := range []string{`,"mm_processor_kwargs":{"max_pixels":1}`, `,"media_io_kwargs":{"image":{"rgba_background_color":[0,0,0]}}`} {
		for range 2 {
			if post(options); sent() == "null" {
				t.Errorf("with %s, the image was sent by a name that stands for other options", options)
			}
		}
	}
	// The same image in another model, and a client's own name, are other things too.
	works(t, f.post(t, "", bytes.Replace(chat(image("AAAA")), []byte(`"m"`), []byte(`"other"`), 1)))
	if sent() == "null" {
		t.Error("another model was taken to have the image")
	}
	named := `{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"},"uuid":"client"}`
	for range 2 {
		if works(t, f.post(t, "", chat(named))); sent() == "null" {
			t.Error("an image was sent by a client's name alone")
		}
	}
}

// TestAForgetfulEncoder: one that does not hold an image after all gets the whole of it, once, and the client notices
// nothing.
func TestAForgetfulEncoder(t *testing.T) {
	for _, refusal := range []int{400, 500} {
		f := newStatic(t, 1, false, says(200, completion), func(c *Config) { c.ShortNames = true })
		f.e[0].answer = func(n int, r received, w http.ResponseWriter) {
			if string(r.chat.parts(t)[0].Image) == "null" {
				says(refusal, `{"error":{"message":"Cache miss for image at index 0 but data is not provided.","type":"BadRequestError"}}`)(n, r, w)
				return
			}
			encodes("")(n, r, w)
		}
		for range 3 {
			works(t, f.post(t, "", chat(image("AAAA"))))
		}
		if got := len(f.e[0].calls()); got != 5 { // whole; name, whole; name, whole
			t.Errorf("%d: %d calls, want 5", refusal, got)
		}
	}
}

// TestBodyLimit (P07, S03): with a length and chunked, at the limit and above; nobody is asked about a body that is too
// large.
func TestBodyLimit(t *testing.T) {
	const limit = 2 << 20
	f := newStatic(t, 1, false, says(200, completion), func(c *Config) {
		c.Body = proxy.BodyLimits{MaxBytes: limit}
	})
	body := func(n int) []byte {
		b := chat(text, image("AAAA"))
		return append(b, bytes.Repeat([]byte(" "), n-len(b))...)
	}
	for _, chunked := range []bool{false, true} {
		for n, status := range map[int]int{limit - 1: 200, limit: 200, limit + 1: 413} {
			var r io.Reader = bytes.NewReader(body(n))
			if chunked {
				r = io.MultiReader(r)
			}
			resp, err := http.Post(f.url+"/v1/chat/completions", "application/json", r)
			if err != nil {
				t.Fatal(err)
			}
			said, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != status || status == 413 && !strings.Contains(string(said), fmt.Sprint(limit)) {
				t.Errorf("%d bytes, chunked %v: %d %s", n, chunked, resp.StatusCode, said)
			}
		}
	}
	if n := len(f.d[0].calls()); n != 4 {
		t.Errorf("%d calls, want 4", n)
	}
	slow := newStatic(t, 1, false, says(200, completion), func(c *Config) {
		c.Body = proxy.BodyLimits{MaxBytes: limit, Grace: 50 * time.Millisecond}
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(slow.url, "http://")) // a byte at a time
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{")
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if said, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(said), "HTTP/1.1 408 ") {
		t.Errorf("a slow body: %q, %v", said, err)
	}
}

// fetching returns a fleet whose front fetches media, from private hosts too if private.
func fetching(t *testing.T, private bool, timeout time.Duration) *fleet {
	fetcher := media.NewFetcher(media.FetcherConfig{AllowPrivate: private, Timeout: timeout, MaxBytes: 1 << 20})
	t.Cleanup(fetcher.Close)
	return newStatic(t, 1, false, says(200, completion), func(c *Config) { c.Fetcher, c.MaxFetchBytes = fetcher, 1<<20 })
}

func remote(url string) string {
	return fmt.Sprintf(`{"type":"image_url","image_url":{"url":%q}}`, url)
}

// TestNoWorkerIsSentSomewhere (S01): URLs that lead inwards, or to files, are refused here, and no worker hears of them.
func TestNoWorkerIsSentSomewhere(t *testing.T) {
	f := fetching(t, false, time.Minute)
	for _, url := range []string{
		"http://127.0.0.1:1/x", "http://[::1]/x", "http://[::ffff:127.0.0.1]/x", "http://169.254.169.254/latest/meta-data", "http://10.0.0.1/x",
		"http://2130706433/x", "http://0x7f.1/x", "http://0177.0.0.1/x", "http://user@127.0.0.1/x", "http://localhost/x",
		"file:///etc/passwd", "FILE:///etc/passwd", "gopher://x/", "ftp://x/", "//x/y", "AAAA", "http://", "http://x:99999/",
	} {
		got := f.post(t, "", chat(text, remote(url)))
		fails(t, got, 400, "messages[0].content[1]")
	}
	if n := len(f.e[0].calls()) + len(f.d[0].calls()); n > 0 {
		t.Errorf("%d calls to workers", n)
	}
}

// TestFetchedMedia (I10): what is behind a URL travels as a data URL and is named by what it is; what is not there is the
// caller's fault and says nothing of the workers.
func TestFetchedMedia(t *testing.T) {
	content, status := "\x89PNG\r\n\x1a\nfirst", 200
	agent := make(chan string, 16)
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent <- r.UserAgent()
		if r.URL.Path == "/stalled" {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(status)
		io.WriteString(w, content)
	}))
	defer host.Close()
	f := fetching(t, true, time.Minute)
	works(t, f.post(t, "", chat(remote(host.URL+"/a"))))
	content = "\x89PNG\r\n\x1a\nsecond"
	works(t, f.post(t, "", chat(remote(host.URL+"/a"))))
	e := f.e[0].calls()
	one, two := e[0].chat.parts(t)[0], e[1].chat.parts(t)[0]
	if one.UUID == two.UUID || !strings.HasPrefix(string(one.Image), `{"url":"data:image/png;base64,`) {
		t.Errorf("sent as %+v and %+v", one, two)
	}
	if <-agent == "" {
		t.Error("no User-Agent was sent")
	}
	for _, s := range []int{404, 403, 429, 500} {
		status = s
		fails(t, f.post(t, "", chat(remote(host.URL+"/a"))), 400, fmt.Sprint(s))
	}
	hasty := fetching(t, true, 50*time.Millisecond)
	fails(t, hasty.post(t, "", chat(remote(host.URL+"/stalled"))), 400, "did not arrive within")
	fails(t, f.post(t, "", chat(remote("http://127.0.0.1:1/x"))), 400, "messages[0].content[0]")
	if n := len(f.e[0].calls()); n != 2 {
		t.Errorf("%d encode calls, want 2", n)
	}
	if s := f.reg.find(f.e[0].URL); s.callFails > 0 || len(f.reg.Status().Encode.Live) != 1 {
		t.Error("an unreachable URL counts against the Encoder")
	}
}

// TestSlowFetchesHoldNobodyUp (F01): while media are fetched, text and health are served.
func TestSlowFetchesHoldNobodyUp(t *testing.T) {
	entered, release := make(chan struct{}, 64), make(chan struct{})
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		io.WriteString(w, "x")
	}))
	defer host.Close()
	fetcher := media.NewFetcher(media.FetcherConfig{AllowPrivate: true, Timeout: time.Minute, MaxConcurrent: 4})
	defer fetcher.Close()
	f := newStatic(t, 1, false, says(200, completion), func(c *Config) { c.Fetcher = fetcher })
	done := make(chan answered, 20)
	for range 20 {
		go func() { done <- f.post(t, "", chat(remote(host.URL))) }()
	}
	for range 4 {
		<-entered
	}
	works(t, f.post(t, "", chat(text)))
	works(t, f.post(t, "", chat(image("AAAA"))))
	works(t, f.send(t, http.MethodGet, "/health", nil))
	close(release)
	for range 20 {
		works(t, <-done)
	}
}

// TestClientsSteerNothing (S04, S06): headers and fields that tie workers together are not a client's to choose.
func TestClientsSteerNothing(t *testing.T) {
	for _, split := range []bool{false, true} {
		f := newStatic(t, 1, split, says(200, completion), nil)
		own := `"ec_transfer_params":{"consumer_zmq":"tcp://6.6.6.6:1"},"kv_transfer_params":{"remote_host":"6.6.6.6"},`
		for _, parts := range [][]string{{text}, {image("AAAA")}} {
			body := bytes.Replace(chat(parts...), []byte(`"model"`), []byte(own+`"model"`), 1)
			works(t, f.send(t, http.MethodPost, "/v1/chat/completions", body, "X-Data-Parallel-Rank", "7", "X-Api-Key", "k", "Authorization", "Bearer secret"))
		}
		for _, s := range f.map3() {
			for _, c := range s.calls() {
				if strings.Contains(c.body, "6.6.6.6") || c.header.Get("X-Data-Parallel-Rank")+c.header.Get("X-Api-Key")+c.header.Get("Authorization") != "" {
					t.Errorf("a worker got %v %s", c.header, c.body)
				}
			}
		}
	}
}

// TestAdminRoutesWantTheKey (S09): and no answer shows it.
func TestAdminRoutesWantTheKey(t *testing.T) {
	f := dynamic(t, nil)
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		for _, key := range []string{"", "k", "k11", "K1"} {
			got := f.send(t, method, "/instances?url=http://x", []byte(`{"role":"encode","url":"http://x"}`), "X-API-Key", key)
			fails(t, got, 403, "Invalid admin API key")
		}
	}
	for _, path := range []string{"/instances", "/health", "/v1/models"} {
		if got := f.send(t, http.MethodGet, path, nil); strings.Contains(string(got.body), adminKey) {
			t.Errorf("%s shows the key: %s", path, got.body)
		}
	}
	open := newFront(t, func(c *Config) { c.Dynamic = true }) // no key: nobody may
	fails(t, open.send(t, http.MethodPost, "/instances", []byte(`{}`), "X-API-Key", ""), 403, "Invalid admin API key")
	static := newStatic(t, 1, false, says(200, completion), nil)
	if got := static.send(t, http.MethodGet, "/instances", nil); got.status != 404 {
		t.Errorf("a static fleet has a roster to write: %d", got.status)
	}
}

// TestBadRegistrations are 4xx that name the field.
func TestBadRegistrations(t *testing.T) {
	f := dynamic(t, nil)
	for body, words := range map[string]string{
		``: "not of the form", `[]`: "not of the form", `{"role":7}`: "not of the form", `{}`: "role must be",
		`{"role":"encode"}`: "url must be", `{"role":"encode","url":"x:1"}`: "url must be", `{"role":"encode","url":"ftp://x"}`: "url must be",
		`{"role":"encode","url":"http://u:p@x"}`: "url must be", `{"role":"encode","url":"http://x?q"}`: "url must be",
		`{"role":"decode","url":"http://x","dp_size":0}`:                   "dp_size must be at least 1",
		`{"role":"decode","url":"http://x","dp_size":4611686018427387904}`: "dp_size must be at most 1024",
		`{"role":"prefill","url":"http://x","ec_zmq_addrs":["a","b"]}`:     "one Mooncake control address per DP replica",
		`{"role":"encode","url":"http://x","ec_zmq_addrs":["tcp://a"]}`:    "Only EC consumers",
	} {
		got := f.send(t, http.MethodPost, "/instances", []byte(body), "X-API-Key", adminKey)
		if msg, _ := messageOf(t, got); got.status/100 != 4 || !strings.Contains(msg, words) {
			t.Errorf("%s: %d %q, want a 4xx with %q", body, got.status, msg, words)
		}
	}
	got := f.send(t, http.MethodPost, "/instances", bytes.Repeat([]byte(" "), maxRegistration+1), "X-API-Key", adminKey)
	fails(t, got, 413, fmt.Sprint(maxRegistration))
	fails(t, f.leave(t, "nonsense"), 422, "url must be")
}
