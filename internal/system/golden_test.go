// SPDX-License-Identifier: Apache-2.0

package system

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// goldenFolder holds requests and what vLLM answered to them: NAME.request.json, NAME.response.txt.
const goldenFolder = "../openai/testdata/monolith"

// golden says how our answer to one recorded request relates to vLLM's. Without why, the two are the same:
// errors to the byte, answers but for values that the model or the clock chose. With why, we mean to
// answer what stands beside it.
type golden struct {
	why    string
	status int    // ours
	param  string // ours
	says   string // part of our message
}

// The reasons of several differences.
const (
	namesPart   = "vLLM leaves param null; we name the part at fault"
	clientFault = "vLLM blames itself for a URL that its client chose, and clients retry a 500"
)

// goldens has every request of the folder.
var goldens = map[string]golden{
	"text":                {},
	"image1":              {},
	"image1_again":        {},
	"image1_reqid":        {},
	"image1_stream":       {},
	"image1_stream_usage": {},
	"image1_uuid":         {},
	"image2":              {},

	"err_audio":                       {},
	"err_bad_temperature":             {},
	"err_ec_params_without_connector": {}, // answered: unknown fields are ignored
	"err_empty_messages":              {},
	"err_json_array":                  {},
	"err_max_tokens_neg":              {},
	"err_max_tokens_too_big":          {},
	"err_n_stream_opts":               {},
	"err_no_messages":                 {},
	"err_not_json":                    {},
	"err_temperature_range":           {},
	"err_too_many_images":             {},
	"err_unknown_model":               {},
	"image_uuid_only_unknown":         {},

	"err_bad_base64": {why: namesPart, status: 400, param: "messages[0].content[0]", says: "Non-base64 digit found"},
	"err_bad_image_bytes": {why: namesPart + ", and which formats we read", status: 400, param: "messages[0].content[1]",
		says: "Failed to load image: cannot identify image file; PNG, JPEG, GIF and WebP"},
	"err_bad_image_stream": {why: namesPart + ", and which formats we read", status: 400, param: "messages[0].content[1]",
		says: "Failed to load image: cannot identify image file; PNG, JPEG, GIF and WebP"},
	"err_bad_url_scheme": {why: namesPart, status: 400, param: "messages[0].content[0]",
		says: "The URL must be either a HTTP, data or file URL."},
	"err_image_url_string": {why: "vLLM shows a message of its validation library, the value included", status: 400,
		param: "messages[0].content[0].image_url", says: "must be an object like"},
	"err_too_long": {why: "vLLM stops counting at the limit; we know the whole count", status: 400,
		param: "input_tokens", says: "This model's maximum context length is 2048 tokens. However, your prompt contains at least 5019 input tokens"},
	"err_bad_role": {why: "most templates would write a role that nobody knows into the prompt as it stands", status: 400,
		param: "messages[0].role", says: "is not known: use system, developer, user"},
	"err_file_url":        {why: clientFault, status: 400, param: "messages[0].content[0]", says: "Cannot load local files"},
	"err_unreachable_url": {why: clientFault, status: 400, param: "messages[0].content[0]", says: "Failed to fetch image"},
	"image_uuid_only": {why: "nothing is kept under a client's word for an image", status: 400,
		says: "Cache miss for image at index 0 but data is not provided."},

	"err_not_found": {why: "recorded at a path that does not exist; see TestGoldenRoutes", status: 400, param: "body.messages", says: "Field required"},
}

// TestGolden replays the recorded requests. Limits are those of the recorded server.
func TestGolden(t *testing.T) {
	f := newFleet(t, func(o *options) { o.maxImages, o.context = 4, 2048 })
	files, err := filepath.Glob(filepath.Join(goldenFolder, "*.request.json"))
	if err != nil || len(files) != len(goldens) {
		t.Errorf("%d requests in %s, %d in the table (%v)", len(files), goldenFolder, len(goldens), err)
	}
	for name, g := range goldens {
		t.Run(name, func(t *testing.T) {
			header := map[string]string{}
			if name == "image1_reqid" {
				header["X-Request-Id"] = "golden-req-1"
			}
			got := f.send(t, http.MethodPost, "/v1/chat/completions", header, goldenRequest(t, name))
			want := goldenResponse(t, name)
			if got.header.Get("X-Request-Id") == "" {
				t.Error("the answer has no request id")
			}
			if g.why != "" {
				checkOurs(t, g, got, want)
				return
			}
			checkSame(t, got, want)
			if id := header["X-Request-Id"]; id != "" && (got.header.Get("X-Request-Id") != id || !strings.Contains(got.body, `{"id":"chatcmpl-`+id+`"`)) {
				t.Errorf("request %s is answered as %s: %s", id, got.header.Get("X-Request-Id"), got.body)
			}
		})
	}
}

// TestGoldenRoutes compares the routes beside the chat.
func TestGoldenRoutes(t *testing.T) {
	f := newFleet(t, nil)
	checkSame(t, f.send(t, "GET", "/v1/models", nil, nil), goldenResponse(t, "models"))
	checkSame(t, f.send(t, "GET", "/health", nil, nil), goldenResponse(t, "health"))
	checkSame(t, f.send(t, "POST", "/v1/nothing", nil, goldenRequest(t, "err_not_found")), goldenResponse(t, "err_not_found"))
	for path, allow := range map[string]string{"/v1/chat/completions": "POST", "/v1/models": "GET", "/health": "GET"} {
		got := f.send(t, "DELETE", path, nil, nil)
		checkSame(t, got, goldenResponse(t, "err_method"))
		if got.header.Get("Allow") != allow {
			t.Errorf("DELETE %s: Allow is %q, want %q", path, got.header.Get("Allow"), allow)
		}
	}
	// The version is ours, and says of which role it is.
	var v struct{ Version, Role string }
	got := f.send(t, "GET", "/version", nil, nil)
	if err := json.Unmarshal([]byte(got.body), &v); err != nil || v.Version != "test" || v.Role != "gateway" ||
		got.header.Get("Content-Type") != goldenResponse(t, "version").header.Get("Content-Type") {
		t.Errorf("/version answers %+v (%v)", got, err)
	}
}

// checkSame compares an answer with vLLM's.
func checkSame(t *testing.T, got, want answer) {
	t.Helper()
	if got.status != want.status || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
		t.Errorf("answered %d %q, want %d %q: %s", got.status, got.header.Get("Content-Type"),
			want.status, want.header.Get("Content-Type"), got.body)
		return
	}
	switch {
	case want.status != 200 || want.body == "":
		if got.body != want.body {
			t.Errorf("body differs\n got %s\nwant %s", got.body, want.body)
		}
	case strings.HasPrefix(want.header.Get("Content-Type"), "text/event-stream"):
		if d := cmp.Diff(streamShape(t, want.body), streamShape(t, got.body)); d != "" {
			t.Errorf("events differ from vLLM's (-want +got):\n%s", d)
		}
	default:
		if d := cmp.Diff(shape(t, want.body), shape(t, got.body)); d != "" {
			t.Errorf("body differs from vLLM's (-want +got):\n%s", d)
		}
		checkUsage(t, got.body)
	}
}

// checkOurs compares an error with the one that we mean to answer, and makes sure that the difference
// is still one.
func checkOurs(t *testing.T, g golden, got, vllm answer) {
	t.Helper()
	var e struct {
		Error struct {
			Message, Type string
			Param         *string
			Code          int
		}
	}
	if err := json.Unmarshal([]byte(got.body), &e); err != nil {
		t.Fatalf("%v: %s", err, got.body)
	}
	param := ""
	if e.Error.Param != nil {
		param = *e.Error.Param
	}
	if got.status != g.status || e.Error.Code != g.status || param != g.param || !strings.Contains(e.Error.Message, g.says) {
		t.Errorf("answered %d %s, want %+v", got.status, got.body, g)
	}
	want := []string{"{", ".error = {", ".error.message = …", ".error.type = …", ".error.param = …", ".error.code = …", ".error = }", "}"}
	var keys []string
	for _, line := range shape(t, got.body) {
		if k, _, ok := strings.Cut(line, " = "); ok && !strings.HasSuffix(line, "{") && !strings.HasSuffix(line, "}") {
			line = k + " = …"
		}
		keys = append(keys, line)
	}
	if d := cmp.Diff(want, keys); d != "" {
		t.Errorf("the error has another shape (-want +got):\n%s", d)
	}
	if got.body == vllm.body {
		t.Error("the table calls this a difference, but it is none")
	}
}

// goldenRequest returns a recorded body, asked of the model that the fleet serves.
func goldenRequest(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(goldenFolder, name+".request.json"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(b, []byte(`tiny-vl`), []byte(`modelled`))
}

// goldenResponse reads what vLLM answered, as if it served our model. The record has its transfer
// encoding undone, so that its headers are not true of it.
func goldenResponse(t *testing.T, name string) answer {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(goldenFolder, name+".response.txt"))
	if err != nil {
		t.Fatal(err)
	}
	head, body, ok := bytes.Cut(bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
	for _, name := range []string{"content-length:", "transfer-encoding:"} {
		head = bytes.ReplaceAll(head, []byte(name), []byte("was-"+name))
	}
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(bytes.NewReader(head), strings.NewReader("\n\n"), bytes.NewReader(body))), nil)
	if err != nil || !ok {
		t.Fatalf("%s: %v", name, err)
	}
	a := readAnswer(t, resp)
	a.body = strings.ReplaceAll(a.body, "tiny-vl", "modelled")
	return a
}

// answer is a response read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

func readAnswer(t *testing.T, resp *http.Response) answer {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if n := resp.ContentLength; n >= 0 && n != int64(len(body)) {
		t.Errorf("content-length is %d for %d bytes", n, len(body))
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// send sends one request to the gateway.
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
		t.Fatal(fmt.Errorf("%s %s: %w", method, path, err))
	}
	return readAnswer(t, resp)
}
