// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// goldenFolder holds requests and what vLLM answered to them: NAME.request.json, NAME.response.txt.
const goldenFolder = "testdata/golden"

// How a recorded answer is compared. Status and content type are equal in all modes but differs.
type mode int

const (
	equal   mode = iota // bodies are equal to the byte
	shaped              // keys, order, nulls and framing are equal; values too unless the model chose them
	worded              // an error of the same shape, type, param and code; the message is our own
	differs             // we mean to answer something else, which is written down
)

// goldenCase says how our answer to one recorded request relates to vLLM's.
type goldenCase struct {
	mode mode
	why  string // for worded and differs
	// What we answer, for differs.
	status int
	param  string
	part   string // of the message
}

// ourParam: vLLM leaves param null where an image is at fault; we name the part.
const imagePart = "messages[0].content[0]"

// goldenCases has every request of the folder.
var goldenCases = map[string]goldenCase{
	"text":                {mode: shaped},
	"image1":              {mode: shaped},
	"image1_again":        {mode: shaped},
	"image1_reqid":        {mode: shaped},
	"image1_stream":       {mode: shaped},
	"image1_stream_usage": {mode: shaped},
	"image1_uuid":         {mode: shaped},
	"image2":              {mode: shaped},
}

// goldenRequest returns a recorded body, asked of the model that the fleet serves.
func goldenRequest(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(goldenFolder, name+".request.json"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(b, []byte(`"tiny-vl"`), []byte(`"modelled"`))
}

// answer is a response read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// goldenAnswer reads what vLLM answered. Its transfer encoding is undone in the record.
func goldenAnswer(t *testing.T, name string) answer {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(goldenFolder, name+".response.txt"))
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Replace(b, []byte("transfer-encoding: chunked"), []byte("x-recorded: whole"), 1)
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return readAnswer(t, resp)
}

func readAnswer(t *testing.T, resp *http.Response) answer {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// ask sends one request to the gateway.
func (f *fleet) send(t *testing.T, method, path string, header map[string]string, body []byte) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.gateway.URL+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := f.gateway.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return readAnswer(t, resp)
}

func TestExplore(t *testing.T) {
	f := newFleet(t, func(o *options) { o.maxImages = 4 })
	files, err := filepath.Glob(filepath.Join(goldenFolder, "*.request.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".request.json")
		h := map[string]string{}
		if name == "image1_reqid" {
			h["X-Request-Id"] = "golden-req-1"
		}
		got, want := f.send(t, "POST", "/v1/chat/completions", h, goldenRequest(t, name)), goldenAnswer(t, name)
		if got.body != want.body {
			fmt.Printf("== %s\n got %d %s %.1500s\nwant %d %s %.1500s\n", name, got.status, got.header, got.body, want.status, want.header, want.body)
		} else {
			fmt.Printf("== %s equal\n", name)
		}
	}
	_ = maps.Keys[map[string]int]
	_ = slices.Max[[]int]
	_ = cmp.Diff
}
