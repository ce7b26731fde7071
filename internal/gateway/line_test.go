// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"afterimage/internal/control"
	"afterimage/internal/embedding"
	"afterimage/internal/media"
	"afterimage/internal/openai"
	"afterimage/internal/proxy"
)

// answered200 is a Reply that has passed an answer on.
func answered200(t *testing.T, body string) *proxy.Reply {
	t.Helper()
	out := proxy.NewReply(httptest.NewRecorder(), 0)
	resp := &http.Response{Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
	if err := out.Pass(resp, func() {}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestLine: a request's line has its stages, its items and its tokens; with parameters, none of them is text of the
// client's, and URLs are without queries, names and passwords.
func TestLine(t *testing.T) {
	const secret = "SECRET"
	body := []byte(`{"model":"m","temperature":0.5,"n":2,"seed":"` + secret + `","stop":["` + secret + `"],"user":"` + secret + `","logit_bias":{"5":1},
		"response_format":{"type":"json_schema","json_schema":{"schema":{"title":"` + secret + `"}}},"metadata":{"a":"` + secret + `"},
		"messages":[{"role":"user","content":[{"type":"text","text":"` + secret + `"},{"type":"image_url","image_url":{"url":"data:,` + secret + `"}},{"type":"image_url","image_url":{"url":"http://h/"}}]}]}`)
	scan, err := openai.Scan(body, openai.ScanLimits{MaxImages: 2})
	if err != nil {
		t.Fatal(err)
	}
	info := media.Info{Format: "png", Width: 3, Height: 4}
	req := &request{
		id: "mine", path: control.PathChat, scan: scan, uses: []int{0, 1}, in: int64(len(body)),
		images: []*image{{info: info, size: len(secret)}, {info: info, url: "http://user:" + secret + "@host:81/a%20b.png?sig=" + secret + "#" + secret, size: 2, how: "revalidated"}},
	}
	trace := control.Trace{
		Status: 200, Prefill: "prefill-0", Attempts: 2, Stages: []control.TraceStage{{Name: "read", MS: 0.12345}, {Name: "total", MS: 7}},
		Items: []control.TraceItem{{Identifier: embedding.Identifier("x"), Source: control.SourceEncoded, Encoder: "encoder-1", Road: control.RoadTCP}, {Source: control.SourceStore}},
	}
	var log bytes.Buffer
	g := &Gateway{cfg: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	out := answered200(t, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}}`)
	line := func() string {
		log.Reset()
		g.log(req, out, trace)
		_, said, _ := strings.Cut(log.String(), "msg=request ")
		return strings.TrimSuffix(said, "\n")
	}
	want := `request=mine path=/v1/chat/completions status=200 model=m prefill=prefill-0 attempts=2 items="encoded@encoder-1/tcp store" read_ms=0.123 total_ms=7` +
		fmt.Sprintf(` bytes_in=%d bytes_out=%d prompt_tokens=5 cached_tokens=3 completion_tokens=2`, len(body), out.Sent())
	if got := line(); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	req.show()
	got := line()
	if want := `messages=1 n=2 temperature=0.5 response_format=json_schema media="data png 3x4 6B, http://host:81/a%20b.png revalidated png 3x4 2B"`; !strings.Contains(got, want) || strings.Contains(got, secret) {
		t.Errorf("\n got %s\nwant %s and no %s", got, want, secret)
	}
	req.scan, req.shown, trace = nil, nil, control.Trace{Status: 400, Error: "no JSON"}
	if got := line(); !strings.HasSuffix(got, `err="no JSON"`) || strings.Contains(got, "model") {
		t.Errorf("a request that was not read: %s", got)
	}
}
