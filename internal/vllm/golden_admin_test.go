// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The reasons for which answers of registration and of failures differ from those of vLLM's proxy.
const (
	apiShape = "errors have the API's shape, with the same status and words"
	honest   = "the gateway works and the worker behind it does not, which is a 502 and no 500"
)

// adminDiffers has every recorded answer of the registration API that ours differs from: by request and the
// recorded body.
var adminDiffers = map[string]string{
	"No decode instance is registered":                         apiShape,
	"No encode instance is registered":                         apiShape,
	"Invalid admin API key":                                    apiShape,
	"Cannot mix prefill_decode with standalone prefill/decode": apiShape,
	"Input should be 'encode', 'prefill', 'decode' or":         apiShape,
	"Only EC consumers accept Mooncake addresses":              apiShape,
	"Provide one Mooncake control address per DP replica":      apiShape,
}

// sameWords tells where a message of ours is worded differently.
var sameWords = map[string]string{"Input should be 'encode', 'prefill', 'decode' or": "role must be 'encode', 'prefill', 'decode' or 'prefill_decode'"}

// flagsOf matches the options of a recorded curl.
var flagsOf = regexp.MustCompile(`-X (\S+)|-H (X-API-Key|Content-Type): (\S+)|-d (.+)$`)

// TestGoldenRegistration replays the recorded exchanges with the registration API.
func TestGoldenRegistration(t *testing.T) {
	b, err := os.ReadFile("testdata/epd/dynamic.txt")
	if err != nil {
		t.Fatal(err)
	}
	e, pd := newStub(t, nil), newStub(t, nil)
	models := regexp.MustCompile(`\{"object":"list".*\}`).Find(b)
	f := dynamic(t, func(c *Config) { c.Registry.FailThreshold = 3 })
	pd.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = w.Write(models)
		}
	})
	// The recorded fleet, and where it is here. Nobody listens at 18099.
	at := strings.NewReplacer("http://127.0.0.1:18001", e.URL, "http://127.0.0.1:18003", pd.URL, "http://127.0.0.1:18099", "http://127.0.0.1:9")
	used := map[string]bool{}
	asked := map[string]int{}
	b = bytes.ReplaceAll(b, []byte("\r"), nil)
	for _, exchange := range bytes.Split(b, []byte(">>> "))[1:] {
		request, rest, _ := bytes.Cut(exchange, []byte("\n"))
		head, body, _ := bytes.Cut(rest, []byte("\n\n"))
		want := at.Replace(strings.TrimSpace(string(body)))
		line := string(request)
		if asked[line]++; strings.HasSuffix(line, "/instances") && asked[line] == 3 { // recorded after some seconds
			for range 3 {
				f.probeAll(t.Context())
			}
		}
		got := f.replayCurl(t, at, line)
		var status int
		fmt.Sscanf(string(head), "HTTP/1.1 %d", &status)
		if got.status != status || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s, want %d", line, got.status, got.header.Get("Content-Type"), status)
		}
		if string(got.body) == want {
			continue
		}
		f.differs(t, line, got, want, used)
	}
	for words := range adminDiffers {
		if !used[words] {
			t.Errorf("no answer differs by %q", words)
		}
	}
}

// differs checks that an answer differs for a reason.
func (f *front) differs(t *testing.T, line string, got answered, want string, used map[string]bool) {
	t.Helper()
	msg, _ := messageOf(t, got)
	for words := range adminDiffers {
		if strings.Contains(want, words) {
			used[words] = true
			if ours := sameWords[words]; ours != "" {
				words = ours
			}
			if !strings.Contains(msg, words) {
				t.Errorf("%s: %q lacks %q", line, msg, words)
			}
			return
		}
	}
	t.Errorf("%s:\n got %s\nwant %s", line, got.body, want)
}

// replayCurl makes a recorded call.
func (f *front) replayCurl(t *testing.T, at *strings.Replacer, line string) answered {
	t.Helper()
	method, body := http.MethodGet, ""
	var header []string
	for _, m := range flagsOf.FindAllStringSubmatch(line, -1) {
		switch {
		case m[1] != "":
			method = m[1]
		case m[2] != "":
			header = append(header, m[2], m[3])
		case m[4] != "":
			body = at.Replace(m[4])
			if method == http.MethodGet {
				method = http.MethodPost
			}
		}
	}
	path := regexp.MustCompile(`http://127\.0\.0\.1:18013(\S+)`).FindStringSubmatch(line)[1]
	return f.send(t, method, at.Replace(path), []byte(body), header...)
}

// TestGoldenFailures: what clients see of workers that are down. vLLM's proxy answers a stream with 200 and
// nothing; ours with the same status as without.
func TestGoldenFailures(t *testing.T) {
	const nobody = "http://127.0.0.1:9"
	for _, g := range []struct {
		file         string
		role         Role
		status       int
		why          string
		saysOfWorker string
	}{
		{"encoder_dead", Encode, 502, apiShape, "the encode worker did not answer: cannot connect"},
		{"pd_dead", PrefillDecode, 502, honest, "the decode worker did not answer: cannot connect"},
	} {
		head, want := recorded(t, g.file+"/dead_plain.response.txt")
		if recordedStatus := statusOf(t, head); (recordedStatus == g.status) != (g.why == apiShape) {
			t.Errorf("%s: recorded as %d; the reason %q does not fit", g.file, recordedStatus, g.why)
		}
		e, pd := newStub(t, encodes("")), newStub(t, says(200, completion))
		static := []Instance{{Role: Encode, URL: e.URL, Replicas: 1}, {Role: PrefillDecode, URL: pd.URL, Replicas: 1}}
		for i := range static {
			if static[i].Role == g.role {
				static[i].URL = nobody
			}
		}
		f := newFront(t, func(c *Config) { c.Static = static })
		body, err := os.ReadFile("testdata/epd/" + g.file + "/dead_plain.request.json")
		if err != nil {
			t.Fatal(err)
		}
		for _, stream := range []string{"false", "true"} {
			got := f.post(t, "", bytes.Replace(body, []byte(`"stream": false`), []byte(`"stream": `+stream), 1))
			fails(t, got, g.status, g.saysOfWorker)
			if bytes.Equal(got.body, want) || strings.Contains(string(got.body), "127.0.0.1") {
				t.Errorf("%s: got %s", g.file, got.body)
			}
		}
	}
	if head, body := recorded(t, "encoder_dead/stream_raw.txt"); statusOf(t, head) != 200 || bytes.Contains(body, []byte("data:")) {
		t.Error("vLLM's proxy answered the stream otherwise than is said here")
	}
}
