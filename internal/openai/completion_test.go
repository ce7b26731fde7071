// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"encoding/json"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestGoldenCompletion writes the answers that vLLM gave, from their values, byte for byte.
func TestGoldenCompletion(t *testing.T) {
	for _, name := range []string{"text", "image1", "image1_reqid", "image2", "image1_uuid"} {
		_, header, want := goldenResponse(t, name)
		var v struct {
			ID                string
			Created           int64
			Model             string
			SystemFingerprint string `json:"system_fingerprint"`
			Choices           []struct{ Message struct{ Content string } }
			Usage             struct {
				PromptTokens     int `json:"prompt_tokens"`
				CompletionTokens int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(want), &v); err != nil {
			t.Fatal(err)
		}
		c := Completion{
			Head:    Head{ID: v.ID, Created: v.Created, Model: v.Model, Fingerprint: v.SystemFingerprint},
			Choices: []Choice{{Content: v.Choices[0].Message.Content, End: End{Reason: FinishLength}}},
			Usage:   Usage{PromptTokens: v.Usage.PromptTokens, CompletionTokens: v.Usage.CompletionTokens},
		}
		w := httptest.NewRecorder()
		c.Write(w)
		if got := w.Body.String(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
		if ct := w.Header().Get("Content-Type"); w.Code != 200 || !strings.Contains(header, "content-type: "+ct+"\n") {
			t.Errorf("%s: got %d %q", name, w.Code, ct)
		}
	}
}

func TestCompletionStop(t *testing.T) {
	c := Completion{Choices: []Choice{{Content: "\x00\x1b\"\\\b\f\n\r\té\u2028\xff", End: End{Reason: FinishStop, Stop: "\n"}}}}
	got := string(c.AppendJSON(nil))
	if want := `"content":"\u0000\u001b\"\\\b\f\n\r\té` + "\u2028\uFFFD" + `"`; !strings.Contains(got, want) {
		t.Errorf("got %s", got)
	}
	if !strings.Contains(got, `"finish_reason":"stop","stop_reason":"\n"`) || !strings.Contains(got, `"system_fingerprint":null`) {
		t.Errorf("got %s", got)
	}
	if !json.Valid([]byte(got)) {
		t.Errorf("invalid JSON: %s", got)
	}
}

func TestCompletionID(t *testing.T) {
	if got := CompletionID("golden-req-1"); got != "chatcmpl-golden-req-1" {
		t.Errorf("got %s", got)
	}
	a, b := CompletionID(""), CompletionID("")
	if len(a) != len("chatcmpl-")+16 || a == b {
		t.Errorf("got %s and %s", a, b)
	}
}

// TestGoldenStream writes the streams that vLLM sent, byte for byte.
func TestGoldenStream(t *testing.T) {
	f := func(name string, usage bool) {
		t.Helper()
		_, header, body := goldenResponse(t, name)
		want := strings.TrimRight(body, "\n") + "\n\n" // the capture ends with line feeds of its own
		events := strings.SplitAfter(want, "\n\n")
		var first struct {
			ID      string
			Created int64
			Model   string
		}
		if err := json.Unmarshal(Event{Raw: []byte(events[0])}.Data(), &first); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		c := NewChunkWriter(w, Head{ID: first.ID, Created: first.Created, Model: first.Model, Fingerprint: "vllm-0.32.0-98466fd8"}, usage, time.Second)
		step := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		step(c.Start(1))
		for _, s := range []string{"", "", "", "", "", "", "\uFFFD\uFFFDk"} {
			step(c.Text(0, s, nil))
		}
		step(c.Finish(0, "", nil, End{Reason: FinishLength}, Usage{PromptTokens: 98, CompletionTokens: 8}))
		if got := w.Body.String(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
		if ct := w.Header().Get("Content-Type"); !strings.Contains(header, "content-type: "+ct+"\n") {
			t.Errorf("got %q", ct)
		}
	}
	f("image1_stream", false)
	f("image1_stream_usage", true)
}

// deadlines records what a ChunkWriter asks of a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	set     []time.Time
	flushes int
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.set = append(d.set, t); return nil }
func (d *deadlines) FlushError() error                  { d.flushes++; return nil }

func TestChunkWriterDeadline(t *testing.T) {
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	c := NewChunkWriter(w, Head{}, true, time.Hour)
	for _, err := range []error{c.Start(1), c.Text(0, "a", nil), c.Finish(0, "", nil, End{Reason: FinishStop}, Usage{})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if w.flushes != 4 || len(w.set) != 5 {
		t.Fatalf("got %d flushes and %d deadlines, want 4 and 5", w.flushes, len(w.set))
	}
	if !w.set[4].IsZero() || time.Until(w.set[3]) < time.Minute {
		t.Errorf("got deadlines %v", w.set)
	}
}

// TestStreamFailure is the wire of case P04: an error event and then the end marker.
func TestStreamFailure(t *testing.T) {
	w := httptest.NewRecorder()
	c := NewChunkWriter(w, Head{ID: "x"}, false, 0)
	if err := c.Start(1); err != nil {
		t.Fatal(err)
	}
	if err := c.Fail(Unavailable(0, "the worker went away")); err != nil {
		t.Fatal(err)
	}
	want := `data: {"error":{"message":"the worker went away","type":"ServiceUnavailableError","param":null,"code":503}}` +
		"\n\ndata: [DONE]\n\n"
	if got := w.Body.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n\n") != 3 {
		t.Errorf("got %s", got)
	}

	w = httptest.NewRecorder()
	c = NewChunkWriter(w, Head{ID: "x"}, false, 0)
	if err := c.Fail(BadRequest("p", "no")); err != nil {
		t.Fatal(err)
	}
	if !c.started || w.Code != 400 || w.Body.String() != `{"error":{"message":"no","type":"BadRequestError","param":"p","code":400}}` {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestGoldenModels(t *testing.T) {
	_, _, want := goldenResponse(t, "models")
	w := httptest.NewRecorder()
	WriteModels(w, []Model{{ID: "tiny-vl", Created: 1795979041, OwnedBy: "vllm", Root: "models/tiny-qwen2_5-vl-random", MaxModelLen: 2048}})
	want = strings.Replace(want, "modelperm-92992409254698c6", "modelperm-tiny-vl", 1)
	if got := w.Body.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(AppendModels(nil, nil)); got != `{"object":"list","data":[]}` {
		t.Errorf("got %s", got)
	}
}

// TestSeveralChoices writes two answers with log probabilities, in one piece and streamed, as valid JSON.
func TestSeveralChoices(t *testing.T) {
	lp := []TokenLogprob{{Logprob: Logprob{Token: []byte("\xc3"), Logprob: -0.5}, Top: []Logprob{{[]byte("a"), -0.25}, {[]byte("\""), math.Inf(-1)}}}}
	const wantLP = `{"content":[{"token":"\uFFFD","logprob":-0.5,"bytes":[195],"top_logprobs":[` +
		`{"token":"a","logprob":-0.25,"bytes":[97]},{"token":"\"","logprob":-9999,"bytes":[34]}]}]}`
	want := strings.ReplaceAll(wantLP, `\uFFFD`, "\uFFFD")
	c := Completion{
		Choices: []Choice{{Content: "a", Logprobs: lp, End: End{Reason: FinishStop}}, {Content: "b", End: End{Reason: FinishLength}}},
		Usage:   Usage{PromptTokens: 9, CompletionTokens: 2, CachedTokens: 7},
	}
	got := string(c.AppendJSON(nil))
	for _, part := range []string{`"logprobs":` + want, `{"index":1,"message":{"role":"assistant","content":"b"`, `"prompt_tokens_details":{"cached_tokens":7}`} {
		if !json.Valid([]byte(got)) || !strings.Contains(got, part) {
			t.Errorf("got %s\nwant %s", got, part)
		}
	}
	w := httptest.NewRecorder()
	s := NewChunkWriter(w, Head{ID: "x"}, true, 0)
	for _, err := range []error{
		s.Start(2), s.Text(1, "b", nil), s.Text(0, "a", lp), s.End(1, "", nil, End{Reason: FinishLength}),
		s.Finish(0, "", lp, End{Reason: FinishStop}, c.Usage),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	events := strings.Split(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n")
	if len(events) != 8 {
		t.Fatalf("%d events in %s", len(events), w.Body)
	}
	for i, part := range []string{
		`"index":0,"delta":{"role"`, `"index":1,"delta":{"role"`, `"index":1,"delta":{"content":"b"}`, `"logprobs":` + want,
		`"finish_reason":"length"`, `"finish_reason":"stop"`, `"cached_tokens":7`, `[DONE]`,
	} {
		if !strings.Contains(events[i], part) || i < 7 && !json.Valid([]byte(strings.TrimPrefix(events[i], "data: "))) {
			t.Errorf("event %d is %s, want %s in it", i, events[i], part)
		}
	}
}
